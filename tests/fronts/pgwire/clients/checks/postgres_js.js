// postgres.js: prepared statements with types of the server, cursors, COPY, cancel.
const postgres = require('postgres');
const {
  check, failed, typed, version, summed, SELECT, ROW, ROWS, ESTIMATE, ERRORS, VALUES,
} = require('./report.js');

(async () => {
  version('postgres');
  const sql = postgres({ max: 1, onnotice: () => {} });
  const wrong = postgres({ max: 1, password: 'wrong' });
  await check('password', () => failed(() => wrong`select 1`));
  await wrong.end();
  await check('connect', () => sql`select current_user, current_database()`);
  await check('select', async () =>
    (await sql.unsafe(SELECT)).map((row) => [row.region, Number(row.count)]));
  await check('types', async () => typed(Object.values((await sql.unsafe(ROW))[0])));
  await check('parameters', async () => {
    const found = {};
    for (const [name, value] of Object.entries(VALUES)) {
      found[name] = Number((await sql`select count(*) from sales where ${sql(name)} = ${value}`)[0].count);
    }
    return found;
  });
  await check('in', () => sql`select count(*) from sales where qty in ${sql([1, 2])}`);
  await check('any', async () => [
    await sql`select count(*) from sales where qty = any(${[1, 2]})`,
    await sql`select count(*) from sales where region <> all(${['north']})`,
  ]);
  await check('nulls', async () => [
    await sql`select note from sales where id = 4`,
    await sql`select count(*) from sales where note = ${null}`,
  ]);
  await check('tables', () => sql`select table_name from information_schema.tables where table_schema = 'public'`);
  await check('columns', async () => (await sql`select * from sales limit 0`).columns.map((c) => [c.name, c.type, c.number]));
  await check('parameter types', async () => {
    const said = await sql`select count(*) from sales where qty = ${1} and day < ${'2024-01-05'}`.describe();
    return [said.types, said.columns.map((c) => [c.name, c.type])];
  });
  await check('statements', () => sql.unsafe('select 1 as a; select count(*) from sales').simple());
  await check('errors', async () => {
    const found = [];
    for (const text of ERRORS) found.push(await failed(() => sql.unsafe(text)));
    return found;
  });
  await check('transaction', async () => {
    const inside = await failed(() => sql.begin(async (part) => {
      await part`select count(*) from sales`;
      await part`select nosuch from sales`;
    }));
    return [inside, await sql.begin('read only', (part) => part`select 1 as a`)];
  });
  await check('cursor', async () => {
    const ids = [];
    for await (const part of sql.unsafe(ROWS).cursor(500)) ids.push(...part.map((row) => row.id));
    return summed(ids);
  });
  await check('estimate', async () => Number((await sql.unsafe(ESTIMATE))[0].n));
  await check('cancel', async () => {
    const other = postgres({ max: 1 });
    await other`select 1`;
    const query = other`select pg_sleep(20)`.execute();
    setTimeout(() => query.cancel(), 500);
    return failed(() => query);
  });
  // A connection of its own: it does not come back from COPY.
  await check('copy', async () => {
    let text = '';
    for await (const part of await postgres({ max: 1 }).unsafe(`copy (${ROWS}) to stdout`).readable()) text += part;
    return summed(text.trim().split('\n').map((line) => line.split('\t')[0]));
  });
  await sql.end({ timeout: 1 });
  process.exit(0); // the connection of a cancelled query stays open
})();
