<?php
// PHP's PDO, and the older pgsql functions for introspection and COPY.
function say($line) { echo json_encode($line, JSON_PRESERVE_ZERO_FRACTION), "\n"; }
function check($name, $action) {
    try { say(['check' => $name, 'value' => $action()]); }
    catch (Throwable $e) { say(['check' => $name, 'error' => get_class($e) . ': ' . $e->getMessage()]); }
}
function failed($action) {
    try { $action(); } catch (PDOException $e) { return is_array($e->errorInfo) && $e->errorInfo[0] != '08006' ? $e->errorInfo[0] : str_contains($e->getMessage(), 'password authentication failed'); }
    return 'no error';
}
error_reporting(E_ALL & ~E_WARNING & ~E_NOTICE);
say(['version' => phpversion('pdo_pgsql')]);
$dsn = sprintf('pgsql:host=%s;port=%s;dbname=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE'));
$connect = fn($password) => new PDO($dsn, getenv('PGUSER'), $password, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
check('password', fn() => failed(fn() => $connect('wrong')));
$db = $connect(getenv('PGPASSWORD'));
$rows = function ($text, $values = []) use ($db) {
    $ask = $db->prepare($text); $ask->execute($values); return $ask->fetchAll(PDO::FETCH_NUM);
};
check('connect', fn() => $rows('select current_user, current_database()'));
check('select', fn() => $rows('select region, count(*) from sales group by region order by region'));
$row = 'select id, amount, price, day, ts, member, active, note, region from sales where id = 7';
check('types', fn() => array_map(fn($v) => [gettype($v), $v], $rows($row)[0]));
check('columns', function () use ($db) {
    $ask = $db->query('select * from sales limit 0'); $found = [];
    for ($i = 0; $i < $ask->columnCount(); $i++) {
        $m = $ask->getColumnMeta($i);
        $found[] = [$m['name'], $m['native_type'], $m['pgsql:oid'], $m['len'], $m['precision'], $m['pdo_type'], $m['table'] ?? null];
    }
    return $found;
});
$values = ['region' => 'north', 'qty' => 3, 'amount' => 7.5, 'price' => '7.25', 'day' => '2024-01-08', 'ts' => '2024-01-01 12:07:00',
    'member' => '00000000-0000-4000-8000-000000000007', 'active' => 't'];
check('parameters', function () use ($values, $rows) {
    $found = [];
    foreach ($values as $name => $value) $found[$name] = $rows("select count(*) from sales where $name = ?", [$value])[0][0];
    return $found;
});
check('typed parameters', function () use ($db) {
    $ask = $db->prepare('select count(*) from sales where qty = :qty and active = :active and region = :region');
    $ask->bindValue('qty', 3, PDO::PARAM_INT); $ask->bindValue('active', true, PDO::PARAM_BOOL); $ask->bindValue('region', 'north');
    $ask->execute(); return $ask->fetchColumn();
});
check('in', fn() => $rows('select count(*) from sales where qty in (?,?)', [1, 2]));
check('any', fn() => $rows('select count(*) from sales where qty = any(?)', ['{1,2}']));
check('nulls', fn() => [$rows('select note from sales where id = 4'), $rows('select count(*) from sales where note = ?', [null])]);
check('emulated', function () use ($db) {
    $ask = $db->prepare('select count(*) from sales where region = ? and qty in (?,?)', [PDO::ATTR_EMULATE_PREPARES => true]);
    $ask->execute(['north', 1, 2]); return $ask->fetchColumn();
});
check('statements', fn() => $db->exec('select 1; select count(*) from sales'));
check('errors', fn() => array_map(fn($text) => failed(fn() => $rows($text)),
    ['select nosuch from sales', 'select 1 from nosuch', 'selec 1', 'select nosuch(1)', "select 'x'::int"]));
check('transaction', function () use ($db, $rows) {
    $db->beginTransaction();
    $inside = failed(fn() => $rows('select nosuch from sales'));
    $aborted = failed(fn() => $rows('select 1'));
    $db->rollBack();
    return [$inside, $aborted, $rows('select 1')];
});
$many = 'select id, region, amount, day from sales order by id';
check('cursor', function () use ($db, $many) {
    $db->beginTransaction();
    $ask = $db->prepare($many, [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]); $ask->execute();
    for ($n = $sum = 0; $row = $ask->fetch(PDO::FETCH_NUM); $n++) $sum += $row[0];
    $db->commit(); return [$n, $sum];
});
check('cancel', function () use ($db) {
    $db->exec('set statement_timeout = 300');
    $code = failed(fn() => $db->query('select pg_sleep(20)'));
    $db->exec('reset statement_timeout'); return $code;
});
$old = pg_connect('');
check('tables', fn() => pg_fetch_all(pg_query($old, "select tablename from pg_tables where schemaname = 'public'")));
check('pg_meta_data', fn() => pg_meta_data($old, 'sales'));
check('pg_select', function () use ($old) { $row = pg_select($old, 'sales', ['id' => 7])[0]; unset($row['illness']); return $row; });
check('pg_field_table', function () use ($old) { $r = pg_query($old, 'select qty, ts from sales limit 0'); return [pg_field_table($r, 0), pg_field_type($r, 1)]; });
check('copy', fn() => count(pg_copy_to($old, "($many)")));
check('pg_query_params', fn() => pg_fetch_all(pg_query_params($old, 'select count(*) from sales where qty in ($1,$2)', [1, 2])));
check('estimate', fn() => (float) $rows("select count(*) from sales where illness = 'flu'")[0][0]);
