// node-postgres: parameters, named statements, cursors, COPY, cancel.
const { Client, Pool } = require('pg');
const Cursor = require('pg-cursor');
const copy = require('pg-copy-streams');
const {
  check, failed, typed, version, summed, SELECT, ROW, ROWS, ESTIMATE, ERRORS, VALUES,
} = require('./report.js');

(async () => {
  version('pg');
  await check('password', () => failed(() => new Client({ password: 'wrong' }).connect()));
  const client = new Client();
  await client.connect();
  const rows = async (text, values) =>
    (await client.query({ text, values, rowMode: 'array' })).rows;
  await check('connect', async () => (await rows('select current_user, current_database()'))[0]);
  await check('select', async () => (await rows(SELECT)).map(([name, n]) => [name, Number(n)]));
  await check('types', async () => typed((await rows(ROW))[0]));
  await check('parameters', async () => {
    const found = {};
    for (const [name, value] of Object.entries(VALUES)) {
      found[name] = Number((await rows(`select count(*) from sales where ${name} = $1`, [value]))[0][0]);
    }
    return found;
  });
  await check('in', () => rows('select count(*) from sales where qty in ($1,$2)', [1, 2]));
  await check('any', async () => [
    await rows('select count(*) from sales where qty = any($1)', [[1, 2]]),
    await rows('select count(*) from sales where region <> all($1)', [['north']]),
  ]);
  await check('nulls', async () => [
    await rows('select note from sales where id = 4'),
    await rows('select count(note) from sales'),
    await rows('select count(*) from sales where note = $1', [null]),
  ]);
  await check('tables', () => rows("select table_name from information_schema.tables where table_schema = 'public'"));
  await check('columns', async () =>
    (await client.query('select * from sales limit 0')).fields.map((f) => [
      f.name, f.dataTypeID, f.dataTypeSize, f.dataTypeModifier, f.columnID, f.tableID > 0, f.format,
    ]));
  await check('statements', async () =>
    (await client.query('select 1 as a; select count(*) from sales')).map((each) => each.rows));
  await check('named statement', async () => {
    const found = [];
    for (const region of ['north', 'south']) {
      const ask = { name: 'one', text: 'select count(*) from sales where region = $1', values: [region] };
      found.push((await client.query(ask)).rows);
    }
    return found;
  });
  await check('errors', async () => {
    const found = [];
    for (const text of ERRORS) found.push(await failed(() => rows(text)));
    return found;
  });
  await check('transaction', async () => {
    await rows('begin');
    const inside = await failed(() => rows('select nosuch from sales'));
    const aborted = await failed(() => rows('select 1'));
    await rows('rollback');
    return [inside, aborted, await rows('select 1')];
  });
  await check('cursor', async () => {
    const cursor = client.query(new Cursor(ROWS));
    const ids = [];
    for (let part = await cursor.read(500); part.length; part = await cursor.read(500)) {
      ids.push(...part.map((row) => row.id));
    }
    await cursor.close();
    return summed(ids);
  });
  await check('copy', async () => {
    let text = '';
    for await (const part of client.query(copy.to(`copy (${ROWS}) to stdout`))) text += part;
    return summed(text.trim().split('\n').map((line) => line.split('\t')[0]));
  });
  await check('cancel', async () => {
    const limited = new Client({ statement_timeout: 300 });
    await limited.connect();
    const code = await failed(() => limited.query('select pg_sleep(20)'));
    await limited.end();
    return code;
  });
  await check('pool', async () => {
    const pool = new Pool({ max: 3 });
    const all = await Promise.all([1, 2, 3, 4].map((n) => pool.query('select $1::int as n', [n])));
    await pool.end();
    return all.map((each) => each.rows[0].n);
  });
  await check('estimate', async () => Number((await rows(ESTIMATE))[0][0]));
  await client.end();
})();
