// pgjdbc: DatabaseMetaData, prepared statements, timestamps, fetch size, cancel.
import java.sql.*;
import java.util.*;

public class Jdbc {
    public static void main(String[] arguments) throws Exception {
        List<String> found = new ArrayList<>();
        try (Connection con = DriverManager.getConnection(System.getenv("WIRE_JDBC"))) {
            DatabaseMetaData meta = con.getMetaData();
            try (ResultSet rows = meta.getTables(null, "public", "%", new String[] {"TABLE"})) {
                while (rows.next()) found.add("table " + rows.getString("TABLE_NAME"));
            }
            try (ResultSet rows = meta.getColumns(null, "public", "sales", "%")) {
                while (rows.next())
                    found.add("column " + rows.getString("COLUMN_NAME") + " " + rows.getString("TYPE_NAME"));
            }
            try (ResultSet rows = meta.getPrimaryKeys(null, "public", "sales")) {
                while (rows.next()) found.add("key");
            }
            try (ResultSet rows = meta.getIndexInfo(null, "public", "sales", false, false)) {
                while (rows.next()) found.add("index");
            }
            try (ResultSet rows = meta.getTypeInfo()) {
                int types = 0;
                while (rows.next()) types++;
                found.add("types " + (types > 20));
            }
            found.add("keywords " + (meta.getSQLKeywords().length() > 100));
            String text = "select count(*), max(ts) from sales where region = ? and ts < ?";
            try (PreparedStatement ask = con.prepareStatement(text)) {
                ask.setString(1, "north");
                ask.setTimestamp(2, Timestamp.valueOf("2030-01-01 00:00:00"));
                for (int i = 0; i < 7; i++) {
                    try (ResultSet rows = ask.executeQuery()) {
                        rows.next();
                        if (i == 6) {
                            found.add("count " + rows.getLong(1));
                            found.add("name " + rows.getMetaData().getColumnName(1));
                            found.add("last " + rows.getTimestamp(2));
                        }
                    }
                }
            }
            con.setAutoCommit(false);
            try (Statement ask = con.createStatement()) {
                ask.setFetchSize(2);
                int groups = 0;
                try (ResultSet rows = ask.executeQuery("select qty, count(*) from sales group by 1")) {
                    while (rows.next()) groups++;
                }
                found.add("groups " + groups);
            }
            con.commit();
            try (Statement ask = con.createStatement()) {
                ask.setQueryTimeout(1);
                ask.executeQuery("select pg_sleep(20)");
            } catch (SQLException problem) {
                found.add("canceled " + problem.getSQLState());
            }
            con.rollback();
        }
        System.out.println(String.join("\n", found));
    }
}
