// TypeORM: introspection by its query runner, entities, query builder, transactions.
const { DataSource, EntitySchema, In, IsNull } = require('typeorm');
const { check, failed, typed, version, SELECT, ROW, ESTIMATE, ERRORS, VALUES } = require('./report.js');

const Sale = new EntitySchema({
  name: 'Sale', tableName: 'sales',
  columns: {
    id: { type: 'bigint', primary: true }, region: { type: 'text' }, qty: { type: 'bigint' },
    day: { type: 'date' }, ts: { type: 'timestamp' }, member: { type: 'uuid' }, note: { type: 'text', nullable: true },
  },
});
(async () => {
  version('typeorm');
  const url = process.env.WIRE_URL;
  const wrong = new DataSource({ type: 'postgres', url: url.replace(process.env.PGPASSWORD, 'wrong') });
  await check('password', () => failed(() => wrong.initialize()));
  const db = new DataSource({ type: 'postgres', url, entities: [Sale] });
  await check('connect', async () => (await db.initialize()).query('select current_user, current_database()'));
  const runner = db.createQueryRunner();
  await check('tables', async () => [await runner.getDatabases(), await runner.hasTable('sales'), await runner.hasTable('nosuch')]);
  await check('columns', async () => {
    const table = await runner.getTable('sales');
    return table.columns.map((c) => [c.name, c.type, c.isNullable, c.precision, c.scale, c.isPrimary]);
  });
  await check('schemas', async () => [await runner.getCurrentDatabase(), await runner.getCurrentSchema(), await runner.hasColumn('sales', 'qty')]);
  await check('select', async () => (await db.query(SELECT)).map((row) => [row.region, Number(row.count)]));
  await check('types', async () => typed(Object.values((await db.query(ROW))[0])));
  await check('parameters', async () => {
    const found = {};
    for (const [name, value] of Object.entries(VALUES)) {
      found[name] = Number((await db.query(`select count(*) from sales where ${name} = $1`, [value]))[0].count);
    }
    return found;
  });
  const sales = db.getRepository('Sale');
  await check('in', () => sales.countBy({ qty: In([1, 2]) }));
  await check('nulls', () => sales.countBy({ note: IsNull() }));
  await check('rows', () => sales.find({ where: { region: 'south' }, order: { id: 'ASC' }, skip: 1, take: 2 }));
  await check('one', () => sales.findOneBy({ id: '7' }));
  await check('rows and count', () => sales.findAndCount({ order: { id: 'DESC' }, take: 2 }));
  await check('builder', () =>
    sales.createQueryBuilder('s').select('s.region', 'region').addSelect('COUNT(*)', 'n')
      .where('s.day >= :day', { day: '2024-01-05' }).andWhere('s.qty IN (:...some)', { some: [1, 2, 3] })
      .groupBy('s.region').orderBy('s.region').getRawMany());
  await check('stream', async () => {
    let count = 0;
    const stream = await sales.createQueryBuilder('s').stream().catch((e) => { throw e; });
    for await (const row of stream) count += row.s_id !== undefined;
    return count;
  });
  await check('errors', async () => {
    const found = [];
    for (const text of ERRORS) found.push(await failed(() => db.query(text)));
    return found;
  });
  await check('transaction', async () => {
    const inside = await failed(() => db.transaction(async (part) => {
      await part.count('Sale');
      await part.query('select nosuch from sales');
    }));
    return [inside, await db.transaction('REPEATABLE READ', (part) => part.count('Sale'))];
  });
  await check('estimate', async () => Number((await db.query(ESTIMATE))[0].n));
  await runner.release();
  await db.destroy();
})();
