# tdbc::postgres: tables, columns, prepared statements, rows one at a time, transactions.
package require tdbc::postgres
fconfigure stdout -encoding utf-8 -buffering line
proc quoted {text} { return "\"[string map {\\ \\\\ \" \\\" \n \\n \t \\t} $text]\"" }
proc say {key name kind value} { puts "{\"$key\": [quoted $name], \"$kind\": [quoted $value]}" }
proc check {name body} {
    if {[catch {uplevel #0 $body} value]} { say check $name error $value } else { say check $name value $value }
}
proc failed {body} {
    if {[catch {uplevel #0 $body} said options]} { return [lindex [dict get $options -errorcode] 2] }
    return "no error"
}
puts "{\"version\": [quoted [package present tdbc::postgres]]}"
check password {
    if {[catch {tdbc::postgres::connection create bad -host $env(PGHOST) -port $env(PGPORT) -user $env(PGUSER) -password wrong -database $env(PGDATABASE)} said]} {
        string match "*password authentication failed*" $said
    }
}
tdbc::postgres::connection create db -host $env(PGHOST) -port $env(PGPORT) -user $env(PGUSER) -password $env(PGPASSWORD) -database $env(PGDATABASE)
check connect { db allrows -as lists {select current_user, current_database()} }
check tables { lsort [dict keys [db tables sal%]] }
check columns { lsort -stride 2 [db columns sales] }
check select { db allrows -as lists {select region, count(*) from sales group by region order by region} }
check types { db allrows -as dicts {select id, amount, price, day, ts, member, active, note, region from sales where id = 7} }
check parameters {
    set found {}
    foreach {name value} {region north qty 3 amount 7.5 price 7.25 day 2024-01-08 ts {2024-01-01 12:07:00} member 00000000-0000-4000-8000-000000000007 active t} {
        lappend found $name [lindex [db allrows -as lists "select count(*) from sales where $name = :value" [dict create value $value]] 0 0]
    }
    set found
}
check in { db allrows -as lists {select count(*) from sales where qty in (:a,:b)} {a 1 b 2} }
check any { db allrows -as lists {select count(*) from sales where qty = any(:a)} {a {{1,2}}} }
check nulls { list [db allrows {select id, note from sales where id = 4}] [db allrows -as lists {select count(*) from sales where note = :missing} {}] }
check prepared {
    set ask [db prepare {select count(*) from sales where region = :region and qty < :most}]
    set found [list [dict keys [$ask params]]]
    foreach region {north south} { set most 3; $ask foreach -as lists row [dict create region $region most $most] { lappend found $row } }
    $ask close
    set found
}
check errors {
    lmap text {{select nosuch from sales} {select 1 from nosuch} {selec 1} {select nosuch(1)} {select 'x'::int}} { failed [list db allrows $text] }
}
check transaction {
    db begintransaction
    set inside [failed {db allrows {select nosuch from sales}}]
    set aborted [failed {db allrows {select 1}}]
    db rollback
    list $inside $aborted [db transaction { db allrows -as lists {select 1} }]
}
check rows {
    set count 0; set sum 0
    db foreach -as lists row {select id, region, amount, day from sales order by id} { incr count; incr sum [lindex $row 0] }
    list $count $sum
}
check cancel { db allrows {set statement_timeout = 300}; set state [failed {db allrows {select pg_sleep(20)}}]; db allrows {reset statement_timeout}; set state }
check estimate { lindex [db allrows -as lists {select count(*) from sales where illness = 'flu'}] 0 0 }
db close
