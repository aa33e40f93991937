// node-postgres: parameters, names, errors.
const { Client } = require('pg');
(async () => {
  const found = {};
  const client = new Client({ connectionString: process.env.WIRE_URL });
  await client.connect();
  const text = 'select region, count(*) from sales group by 1 order by 1';
  const groups = await client.query({ text, rowMode: 'array' });
  found.groups = groups.rows.map(([region, n]) => [region, Number(n)]);
  const counted = await client.query('select count(*) from sales where region = $1', ['north']);
  found.names = counted.fields.map((field) => field.name);
  found.count = Number(counted.rows[0].count);
  try {
    await client.query('select nosuch from sales');
  } catch (problem) {
    found.error = problem.code;
  }
  await client.end();
  console.log(JSON.stringify(found));
})();
