// What every program prints: one JSON line for each check.
const say = (line) => console.log(JSON.stringify(line));
const fs = require('fs');
const path = require('path');
// Not every package lets its package.json be required.
exports.version = (name) => {
  const file = path.join(process.env.NODE_PATH, name, 'package.json');
  say({ version: JSON.parse(fs.readFileSync(file, 'utf8')).version });
};
exports.check = async (name, action) => {
  try {
    say({ check: name, value: await action() });
  } catch (problem) {
    say({ check: name, error: `${problem.constructor.name}: ${problem.message}` });
  }
};
exports.failed = async (action, code = (problem) => problem.code) => {
  try {
    await action();
  } catch (problem) {
    return code(problem);
  }
  return 'no error';
};
exports.typed = (values) =>
  values.map((value) => [value === null ? 'null' : value.constructor.name, String(value)]);
exports.SELECT = 'select region, count(*) from sales group by region order by region';
exports.ROW = 'select id, amount, price, day, ts, member, active, note, region from sales where id = 7';
exports.ROWS = 'select id, region, amount, day from sales order by id';
exports.ESTIMATE = "select count(*) as n from sales where illness = 'flu'";
exports.ERRORS = [
  'select nosuch from sales', 'select 1 from nosuch', 'selec 1', 'select nosuch(1)', "select 'x'::int",
];
exports.VALUES = {
  region: 'north', qty: 3, amount: 7.5, price: '7.25', day: '2024-01-08',
  ts: new Date(2024, 0, 1, 12, 7), member: '00000000-0000-4000-8000-000000000007', active: true,
};
exports.summed = (ids) => [ids.length, ids.reduce((sum, id) => sum + Number(id), 0)];
