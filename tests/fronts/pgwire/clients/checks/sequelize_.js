// Sequelize: introspection, models, bound and replaced parameters, transactions.
const { Sequelize, DataTypes, Op, QueryTypes } = require('sequelize');
const { check, failed, typed, version, SELECT, ROW, ESTIMATE, ERRORS, VALUES } = require('./report.js');

(async () => {
  version('sequelize');
  const code = (problem) => (problem.original ?? problem).code;
  const connect = (url, more) => new Sequelize(url, { logging: false, ...more });
  const url = process.env.WIRE_URL;
  const wrong = connect(url.replace(process.env.PGPASSWORD, 'wrong'));
  await check('password', () => failed(() => wrong.authenticate(), code));
  const db = connect(url, { timezone: '-05:00' });
  const rows = (text, bind) => db.query(text, { type: QueryTypes.SELECT, bind });
  await check('connect', () => rows('select current_user, current_database()'));
  await check('server', async () => typeof (await db.databaseVersion()));
  await check('tables', () => db.getQueryInterface().showAllTables());
  await check('columns', async () => {
    const found = await db.getQueryInterface().describeTable('sales');
    return Object.entries(found).map(([name, c]) => [name, c.type, c.allowNull, c.primaryKey]);
  });
  await check('indexes', () => db.getQueryInterface().showIndex('sales'));
  await check('select', async () => (await rows(SELECT)).map((row) => [row.region, Number(row.count)]));
  await check('types', async () => typed(Object.values((await rows(ROW))[0])));
  await check('parameters', async () => {
    const found = {};
    for (const [name, value] of Object.entries(VALUES)) {
      const [one] = await rows(`select count(*) as n from sales where ${name} = $1`, [name === 'ts' ? '2024-01-01 12:07:00' : value]);
      found[name] = Number(one.n);
    }
    return found;
  });
  await check('in', () => rows('select count(*) as n from sales where qty in ($1,$2)', [1, 2]));
  await check('any', () => rows('select count(*) as n from sales where qty = any($1)', [[1, 2]]));
  const Sales = db.define('sales', {
    id: { type: DataTypes.BIGINT, primaryKey: true }, region: DataTypes.TEXT, qty: DataTypes.BIGINT,
    note: DataTypes.TEXT, day: DataTypes.DATEONLY,
  }, { tableName: 'sales', timestamps: false });
  await check('model: count', () => Sales.count({ where: { qty: [1, 2], day: { [Op.gte]: '2024-01-05' } } }));
  await check('model: group', async () =>
    (await Sales.findAll({
      attributes: ['region', [db.fn('COUNT', db.col('id')), 'n'], [db.fn('MAX', db.col('day')), 'last']],
      group: 'region', order: ['region'], raw: true,
    })));
  await check('model: rows', async () =>
    (await Sales.findAndCountAll({ where: { note: { [Op.is]: null } }, order: ['id'], limit: 3, offset: 2 })).rows.map((r) => r.toJSON()));
  await check('model: like', () => Sales.count({ where: { note: { [Op.iLike]: 'NÄH%' } } }));
  await check('errors', async () => {
    const found = [];
    for (const text of ERRORS) found.push(await failed(() => rows(text), code));
    return found;
  });
  await check('transaction', async () => {
    const inside = await failed(() => db.transaction(async (transaction) => {
      await Sales.count({ transaction });
      await db.query('select nosuch from sales', { transaction });
    }), code);
    const level = Sequelize.Transaction.ISOLATION_LEVELS.SERIALIZABLE;
    return [inside, await db.transaction({ isolationLevel: level }, (transaction) => Sales.count({ transaction }))];
  });
  await check('estimate', async () => Number((await rows(ESTIMATE))[0].n));
  await db.close();
})();
