# DBD::Pg: table_info, column_info, bound parameters, arrays, COPY, asynchronous cancel.
use strict; use warnings;
use DBI; use DBD::Pg qw(:pg_types :async); use JSON::PP;
my $json = JSON::PP->new->canonical->allow_nonref->latin1(0);
$| = 1; binmode(STDOUT, ':encoding(UTF-8)');
sub say_ { print $json->encode($_[0]), "\n" }
sub check { my ($name, $action) = @_;
    my $value = eval { $action->() };
    say_($@ ? { check => $name, error => "$@" } : { check => $name, value => $value }); }
say_({ version => "$DBD::Pg::VERSION" });
my $options = { RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoCommit => 1, pg_enable_utf8 => 1 };
sub failed { my ($action, $handle) = @_; eval { $action->(); 1 } ? 'no error' : $DBI::state }
check('password', sub { failed(sub { DBI->connect('dbi:Pg:', $ENV{PGUSER}, 'wrong', $options) }) });
my $db = DBI->connect('dbi:Pg:', '', '', $options);
sub rows { my ($text, @values) = @_; $db->selectall_arrayref($text, {}, @values) }
check('connect', sub { rows('select current_user, current_database()') });
check('server', sub { $db->{pg_server_version} >= 150000 ? 15 : 0 });
check('tables', sub { [map { [@$_[1 .. 3]] } @{ $db->table_info('', 'public', '%', 'TABLE')->fetchall_arrayref }] });
check('tables by name', sub { [sort grep { /sales/ } $db->tables('', 'public', '', 'TABLE')] });
check('columns', sub { [map { [@$_[1 .. 6, 8, 10, 12, 16, 17]] } @{ $db->column_info('', 'public', 'sales', '%')->fetchall_arrayref }] });
check('keys', sub { my $found = $db->primary_key_info('', 'public', 'sales'); $found ? scalar @{ $found->fetchall_arrayref } : 0 });
check('select', sub { [map { [$_->[0], $_->[1] + 0] } @{ rows('select region, count(*) from sales group by region order by region') }] });
check('types', sub {
    my $ask = $db->prepare('select id, amount, price, day, ts, member, active, note, region from sales where id = 7');
    $ask->execute;
    [$ask->{NAME}, $ask->{pg_type}, $ask->{TYPE}, $ask->{PRECISION}, $ask->{SCALE}, $ask->fetchall_arrayref] });
my %values = (region => 'north', qty => 3, amount => 7.5, price => '7.25', day => '2024-01-08',
    ts => '2024-01-01 12:07:00', member => '00000000-0000-4000-8000-000000000007', active => 1);
check('parameters', sub { my %found;
    $found{$_} = rows("select count(*) from sales where $_ = ?", $values{$_})->[0][0] + 0 for keys %values; \%found });
check('in', sub { rows('select count(*) from sales where qty in (?,?)', 1, 2) });
check('any', sub { [rows('select count(*) from sales where qty = any(?)', [1, 2]), rows('select count(*) from sales where region <> all(?)', ['north'])] });
check('nulls', sub { [rows('select note from sales where id = 4'), rows('select count(*) from sales where note = ?', undef)] });
check('statements', sub { my $n = $db->do('select 1; select count(*) from sales'); "$n" });
check('errors', sub { [map { my $text = $_; failed(sub { rows($text) }) } 'select nosuch from sales', 'select 1 from nosuch', 'selec 1', 'select nosuch(1)', "select 'x'::int"] });
check('transaction', sub {
    $db->begin_work;
    my $inside = failed(sub { rows('select nosuch from sales') });
    my $aborted = failed(sub { rows('select 1') });
    $db->rollback;
    [$inside, $aborted, rows('select 1')] });
check('savepoint', sub {
    $db->begin_work; $db->pg_savepoint('a');
    my $inside = failed(sub { rows('select nosuch from sales') });
    $db->pg_rollback_to('a'); my $after = rows('select 1'); $db->commit; [$inside, $after] });
my $rows = 'select id, region, amount, day from sales order by id';
check('cursor', sub { $db->begin_work; $db->do("declare nm cursor for $rows");
    my ($count, $sum) = (0, 0);
    while (my @part = @{ rows('fetch 500 from nm') }) { $count += @part; $sum += $_->[0] for @part }
    $db->commit; [$count, $sum] });
check('copy', sub { $db->do("copy ($rows) to stdout"); my ($count, $sum, $line) = (0, 0);
    while ($db->pg_getcopydata($line) >= 0) { $count++; $sum += (split /\t/, $line)[0] } [$count, $sum] });
check('cancel', sub { my $ask = $db->prepare('select pg_sleep(20)', { pg_async => PG_ASYNC });
    $ask->execute; select(undef, undef, undef, 0.5); $db->pg_cancel ? 'cancelled' : 'not' });
check('ping', sub { $db->ping > 0 ? 1 : 0 });
check('estimate', sub { rows("select count(*) from sales where illness = 'flu'")->[0][0] + 0 });
$db->disconnect;
