# Ruby's pg: parameters, type maps, prepared statements, single rows, COPY, cancel.
require 'pg'
require 'json'
$stdout.sync = true
def say(line) = puts(JSON.generate(line))
def check(name)
  say({ check: name, value: yield })
rescue StandardError => e
  say({ check: name, error: "#{e.class}: #{e.message}" })
end
def failed
  yield
  'no error'
rescue PG::Error => e
  e.respond_to?(:result) && e.result ? e.result.error_field(PG::PG_DIAG_SQLSTATE) : e.message.include?('password authentication failed')
end
say({ version: PG::VERSION })
check('password') { failed { PG.connect(password: 'wrong') } }
con = PG.connect
con.set_notice_processor { |_| nil }
check('connect') { con.exec('select current_user, current_database()').values }
check('select') { con.exec('select region, count(*) from sales group by region order by region').values.map { |name, n| [name, n.to_i] } }
row = 'select id, amount, price, day, ts, member, active, note, region from sales where id = 7'
check('types') do
  con.type_map_for_results = PG::BasicTypeMapForResults.new(con)
  found = con.exec(row)
  con.type_map_for_results = PG::TypeMapAllStrings.new
  [found.fields, found.values[0].map { |value| [value.class.name, value.to_s] }, found.fields.each_index.map { |i| [found.ftype(i), found.fmod(i), found.fsize(i)] }]
end
values = { region: 'north', qty: 3, amount: 7.5, price: '7.25', day: '2024-01-08', ts: '2024-01-01 12:07:00',
           member: '00000000-0000-4000-8000-000000000007', active: true }
check('parameters') { values.to_h { |name, value| [name, con.exec_params("select count(*) from sales where #{name} = $1", [value]).getvalue(0, 0).to_i] } }
check('typed parameters') do
  map = PG::BasicTypeMapForQueries.new(con)
  con.exec_params('select count(*) from sales where qty in ($1,$2) and amount < $3 and active = $4', [1, 2, 50.5, true], 0, map).values
end
check('in') { con.exec_params('select count(*) from sales where qty in ($1,$2)', [1, 2]).values }
check('any') { con.exec_params('select count(*) from sales where qty = any($1)', ['{1,2}']).values }
check('nulls') { [con.exec('select note from sales where id = 4').values, con.exec_params('select count(*) from sales where note = $1', [nil]).values] }
check('tables') { con.exec("select tablename from pg_tables where schemaname = 'public'").values }
check('columns') { found = con.exec('select * from sales limit 0'); found.fields.each_with_index.map { |name, i| [name, found.ftype(i), found.ftablecol(i), found.ftable(i).positive?] } }
check('prepared') do
  con.prepare('one', 'select count(*) from sales where region = $1 and day < $2')
  said = con.describe_prepared('one')
  [[said.paramtype(0), said.paramtype(1)], con.exec_prepared('one', ['north', '2024-01-05']).values]
end
check('binary') { con.exec_params('select 7::int8, count(*) from sales', [], 1).values[0].map { |v| v.unpack1('q>') } }
check('statements') { con.send_query('select 1; select count(*) from sales'); found = []; while (r = con.get_result) do found << r.values end; found }
check('errors') { ['select nosuch from sales', 'select 1 from nosuch', 'selec 1', 'select nosuch(1)', "select 'x'::int"].map { |text| failed { con.exec(text) } } }
check('transaction') do
  con.exec('begin')
  inside = failed { con.exec('select nosuch from sales') }
  aborted = failed { con.exec('select 1') }
  con.exec('rollback')
  [inside, aborted, con.transaction { |part| part.exec('select 1').values }]
end
rows = 'select id, region, amount, day from sales order by id'
check('single rows') { con.send_query(rows); con.set_single_row_mode; n = sum = 0; con.get_result.stream_each { |r| n += 1; sum += r['id'].to_i }; con.get_result; [n, sum] }
check('cursor') { con.transaction { |part| part.exec("declare nm cursor for #{rows}"); n = 0; while (k = part.exec('fetch 700 from nm').ntuples).positive? do n += k end; n } }
check('copy') { n = 0; con.copy_data("copy (#{rows}) to stdout") { n += 1 while con.get_copy_data }; n }
check('cancel') { con.send_query('select pg_sleep(20)'); sleep 0.5; con.cancel; failed { con.get_last_result } }
check('estimate') { con.exec("select count(*) from sales where illness = 'flu'").getvalue(0, 0).to_f }
con.close
