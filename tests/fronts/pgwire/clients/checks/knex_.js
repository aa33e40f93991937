// knex: schema inspection, builder, bindings, transactions, streams.
const { check, failed, typed, version, summed, SELECT, ROW, ROWS, ESTIMATE, ERRORS, VALUES } = require('./report.js');
const connect = (url) => require('knex')({ client: 'pg', connection: url, pool: { min: 0, max: 2 } });

(async () => {
  version('knex');
  const url = process.env.WIRE_URL;
  const wrong = connect(url.replace(process.env.PGPASSWORD, 'wrong'));
  await check('password', () => failed(() => wrong.raw('select 1')));
  await wrong.destroy();
  const db = connect(url);
  const rows = async (text, values) => (await db.raw(text, values)).rows;
  await check('connect', () => rows('select current_user, current_database()'));
  await check('tables', async () => [await db.schema.hasTable('sales'), await db.schema.hasTable('nosuch')]);
  await check('columns', async () => [await db('sales').columnInfo(), await db.schema.hasColumn('sales', 'qty')]);
  await check('select', async () => (await rows(SELECT)).map((row) => [row.region, Number(row.count)]));
  await check('types', async () => typed(Object.values((await rows(ROW))[0])));
  await check('parameters', async () => {
    const found = {};
    for (const [name, value] of Object.entries(VALUES)) found[name] = Number((await db('sales').where(name, value).count())[0].count);
    return found;
  });
  await check('in', () => db('sales').whereIn('qty', [1, 2]).count());
  await check('any', () => db('sales').whereRaw('qty = any(?)', [[1, 2]]).count());
  await check('nulls', () => db('sales').whereNull('note').count());
  await check('builder', () =>
    db('sales').select('region').count({ n: '*' }).sum({ total: 'amount' }).max({ last: 'ts' })
      .whereBetween('day', ['2024-01-03', '2024-01-20']).andWhere('note', 'ilike', 'N%').groupBy('region').orderBy('region'));
  await check('rows', () => db('sales').select('id', 'region', 'note').orderBy('id', 'desc').limit(3).offset(1));
  await check('first', () => db('sales').where({ id: 7 }).first('id', 'member', 'price'));
  await check('cursor', async () => {
    const ids = [];
    for await (const row of db.raw(ROWS).stream()) ids.push(row.id);
    return summed(ids);
  });
  await check('errors', async () => {
    const found = [];
    for (const text of ERRORS) found.push(await failed(() => rows(text)));
    return found;
  });
  await check('transaction', async () => {
    const inside = await failed(() => db.transaction(async (part) => {
      await part('sales').count();
      await part.raw('select nosuch from sales');
    }));
    return [inside, await db.transaction((part) => part('sales').count(), { isolationLevel: 'serializable' })];
  });
  await check('cancel', () => failed(() => db.raw('select pg_sleep(20)').timeout(500, { cancel: true }), (problem) => problem.constructor.name));
  await check('estimate', async () => Number((await rows(ESTIMATE))[0].n));
  await db.destroy();
})();
