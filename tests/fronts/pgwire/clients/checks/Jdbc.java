// pgjdbc: DatabaseMetaData, prepared statements past their threshold, arrays, fetch size, COPY, cancel.
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.util.*;
import org.postgresql.PGConnection;

public class Jdbc {
    interface Action { Object run() throws Exception; }
    static final String URL = System.getenv("WIRE_JDBC"), USER = System.getenv("PGUSER"), WORD = System.getenv("PGPASSWORD");
    static final String MANY = "select id, region, amount, day from sales order by id";
    static Connection con;

    static String quoted(Object text) {
        return "\"" + String.valueOf(text).replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"";
    }
    static void check(String name, Action action) {
        String line;
        try {
            line = "\"value\": " + quoted(action.run());
        } catch (Exception problem) {
            line = "\"error\": " + quoted(problem);
        }
        System.out.println("{\"check\": " + quoted(name) + ", " + line + "}");
    }
    static String failed(Action action) throws Exception {
        try {
            action.run();
        } catch (SQLException problem) {
            return problem.getSQLState();
        }
        return "no error";
    }
    static List<List<Object>> all(ResultSet rows, String... names) throws SQLException {
        List<List<Object>> found = new ArrayList<>();
        int width = rows.getMetaData().getColumnCount();
        while (rows.next()) {
            List<Object> row = new ArrayList<>();
            for (String name : names) row.add(rows.getObject(name));
            if (names.length == 0) for (int i = 1; i <= width; i++) row.add(rows.getObject(i));
            found.add(row);
        }
        rows.close();
        return found;
    }
    static List<List<Object>> rows(String text, Object... values) throws SQLException {
        try (PreparedStatement ask = con.prepareStatement(text)) {
            for (int i = 0; i < values.length; i++) ask.setObject(i + 1, values[i]);
            return all(ask.executeQuery());
        }
    }
    static String sum(ResultSet rows) throws SQLException {
        long count = 0, total = 0;
        while (rows.next()) { count++; total += rows.getLong(1); }
        return count + " " + total;
    }

    public static void main(String[] arguments) throws Exception {
        check("password", () -> failed(() -> DriverManager.getConnection(URL, USER, "wrong")));
        con = DriverManager.getConnection(URL, USER, WORD);
        DatabaseMetaData meta = con.getMetaData();
        System.out.println("{\"version\": " + quoted(meta.getDriverVersion()) + "}");
        check("connect", () -> rows("select current_user, current_database()"));
        check("product", () -> meta.getDatabaseProductName() + " " + meta.getDatabaseMajorVersion());
        check("tables", () -> all(meta.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"));
        check("columns", () -> all(meta.getColumns(null, "public", "sales", "%"),
            "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE", "ORDINAL_POSITION", "IS_AUTOINCREMENT"));
        check("keys", () -> List.of(all(meta.getPrimaryKeys(null, "public", "sales")), all(meta.getImportedKeys(null, "public", "sales")),
            all(meta.getIndexInfo(null, "public", "sales", false, false))));
        check("schemas", () -> all(meta.getSchemas(), "TABLE_SCHEM").contains(List.of((Object) "public")));
        check("catalogs", () -> all(meta.getCatalogs(), "TABLE_CAT").contains(List.of((Object) "sales")));
        check("types of the server", () -> all(meta.getTypeInfo(), "TYPE_NAME").size() > 20);
        check("functions", () -> meta.getFunctions(null, null, "count").next());
        check("keywords", () -> meta.getSQLKeywords().length() > 100);
        check("select", () -> rows("select region, count(*) from sales group by region order by region"));
        check("types", () -> {
            List<Object> found = new ArrayList<>();
            for (Object value : rows("select id, amount, price, day, ts, member, active, note, region from sales where id = 7").get(0))
                found.add(value.getClass().getSimpleName() + " " + value);
            return found;
        });
        check("result metadata", () -> {
            try (Statement ask = con.createStatement()) {
                ResultSetMetaData said = ask.executeQuery("select * from sales where id = 7").getMetaData();
                List<Object> found = new ArrayList<>();
                for (int i = 1; i <= said.getColumnCount(); i++)
                    found.add(said.getTableName(i) + "." + said.getColumnName(i) + " " + said.getColumnTypeName(i) + " " + said.getColumnClassName(i)
                        + " " + said.getPrecision(i) + " " + said.getScale(i) + " " + said.isNullable(i));
                return found;
            }
        });
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("region", "north");
        values.put("qty", 3L);
        values.put("amount", 7.5);
        values.put("price", new BigDecimal("7.25"));
        values.put("day", java.sql.Date.valueOf("2024-01-08"));
        values.put("ts", Timestamp.valueOf("2024-01-01 12:07:00"));
        values.put("member", UUID.fromString("00000000-0000-4000-8000-000000000007"));
        values.put("active", true);
        check("parameters", () -> {
            List<Object> found = new ArrayList<>();
            for (var each : values.entrySet()) found.add(each.getKey() + rows("select count(*) from sales where " + each.getKey() + " = ?", each.getValue()));
            return found;
        });
        check("parameter types", () -> {
            try (PreparedStatement ask = con.prepareStatement("select count(*) from sales where qty=? and day<? and price>? and region=?")) {
                ParameterMetaData said = ask.getParameterMetaData();
                List<Object> found = new ArrayList<>();
                for (int i = 1; i <= said.getParameterCount(); i++) found.add(said.getParameterTypeName(i));
                return found;
            }
        });
        check("in", () -> rows("select count(*) from sales where qty in (?,?)", 1, 2));
        check("any", () -> List.of(rows("select count(*) from sales where qty = any(?)", con.createArrayOf("bigint", new Long[] {1L, 2L})),
            rows("select count(*) from sales where region <> all(?)", con.createArrayOf("text", new String[] {"north"}))));
        check("nulls", () -> List.of(rows("select note, id from sales where id = 4"), rows("select count(*) from sales where note = ?", (Object) null)));
        check("prepared on the server", () -> {
            List<Object> found = new ArrayList<>();
            try (PreparedStatement ask = con.prepareStatement("select count(*), max(ts) from sales where region = ? and ts < ?")) {
                for (int i = 0; i < 8; i++) {
                    ask.setString(1, i % 2 == 0 ? "north" : "south");
                    ask.setTimestamp(2, Timestamp.valueOf("2030-01-01 00:00:00"));
                    found.add(all(ask.executeQuery()));
                }
            }
            return found;
        });
        check("statements", () -> {
            try (Statement ask = con.createStatement()) {
                ask.execute("select 1; select count(*) from sales");
                String first = all(ask.getResultSet()).toString();
                return first + ask.getMoreResults() + all(ask.getResultSet());
            }
        });
        check("errors", () -> {
            List<String> found = new ArrayList<>();
            for (String text : new String[] {"select nosuch from sales", "select 1 from nosuch", "selec 1", "select nosuch(1)", "select 'x'::int"})
                found.add(failed(() -> rows(text)));
            return found;
        });
        con.setAutoCommit(false);
        check("transaction", () -> {
            String inside = failed(() -> rows("select nosuch from sales")), aborted = failed(() -> rows("select 1"));
            con.rollback();
            Savepoint point = con.setSavepoint("a");
            String again = failed(() -> rows("select nosuch from sales"));
            con.rollback(point);
            Object after = rows("select 1");
            con.commit();
            return List.of(inside, aborted, again, after, con.getTransactionIsolation(), con.isReadOnly());
        });
        check("cursor", () -> {
            try (Statement ask = con.createStatement()) {
                ask.setFetchSize(200);
                return sum(ask.executeQuery(MANY));
            }
        });
        check("scrolling", () -> {
            try (Statement ask = con.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
                ResultSet found = ask.executeQuery(MANY);
                found.absolute(100);
                long at = found.getLong(1);
                found.last();
                return at + " " + found.getRow();
            }
        });
        con.rollback();
        con.setAutoCommit(true);
        check("copy", () -> {
            StringWriter target = new StringWriter();
            return con.unwrap(PGConnection.class).getCopyAPI().copyOut("copy (" + MANY + ") to stdout", target) + " " + target.toString().lines().count();
        });
        check("cancel", () -> failed(() -> {
            try (Statement ask = con.createStatement()) {
                ask.setQueryTimeout(1);
                return ask.executeQuery("select pg_sleep(20)");
            }
        }));
        check("valid", () -> con.isValid(5));
        check("estimate", () -> rows("select count(*) from sales where illness = 'flu'").get(0).get(0));
        con.close();
    }
}
