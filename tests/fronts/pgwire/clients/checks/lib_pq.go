// lib/pq behind database/sql: parameters, arrays, transactions, deadlines.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lib/pq"
)

var db *sql.DB

func check(name string, action func() (any, error)) {
	line := map[string]any{"check": name}
	if value, err := action(); err != nil {
		line["error"] = err.Error()
	} else {
		line["value"] = value
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

type asker interface {
	Query(text string, values ...any) (*sql.Rows, error)
}

func rows(on asker, text string, values ...any) ([][]any, error) {
	found := [][]any{}
	answer, err := on.Query(text, values...)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	names, _ := answer.Columns()
	for answer.Next() {
		row, places := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			places[i] = &row[i]
		}
		if err := answer.Scan(places...); err != nil {
			return nil, err
		}
		for i, value := range row {
			if raw, ok := value.([]byte); ok {
				row[i] = string(raw)
			}
		}
		found = append(found, row)
	}
	return found, answer.Err()
}

func ask(text string, values ...any) func() (any, error) {
	return func() (any, error) { return rows(db, text, values...) }
}

func code(err error) string {
	var problem *pq.Error
	if errors.As(err, &problem) {
		return string(problem.Code)
	}
	return fmt.Sprint(err)
}

func main() {
	version, _ := os.ReadFile("version")
	fmt.Printf("{\"version\": %q}\n", strings.TrimSpace(string(version)))
	check("password", func() (any, error) {
		bad, _ := sql.Open("postgres", "sslmode=disable password=wrong")
		defer bad.Close()
		return code(bad.Ping()), nil
	})
	db, _ = sql.Open("postgres", "sslmode=disable")
	defer db.Close()
	many := "select id, region, amount, day from sales order by id"
	check("connect", ask("select current_user, current_database()"))
	check("select", ask("select region, count(*) from sales group by region order by region"))
	check("types", func() (any, error) {
		answer, err := db.Query("select id, amount, price, day, ts, member, active, note, region from sales where id = 7")
		if err != nil {
			return nil, err
		}
		defer answer.Close()
		kinds, _ := answer.ColumnTypes()
		found := []any{}
		for _, kind := range kinds {
			precision, scale, _ := kind.DecimalSize()
			length, variable := kind.Length()
			found = append(found, []any{kind.Name(), kind.DatabaseTypeName(), fmt.Sprint(kind.ScanType()), precision, scale, length, variable})
		}
		return found, nil
	})
	check("row", ask("select id, amount, price, day, ts, member, active, note, region from sales where id = 7"))
	day, _ := time.Parse("2006-01-02", "2024-01-08")
	at, _ := time.Parse("2006-01-02 15:04", "2024-01-01 12:07")
	names := []string{"region", "qty", "amount", "price", "day", "ts", "member", "active"}
	values := []any{"north", 3, 7.5, "7.25", day, at, "00000000-0000-4000-8000-000000000007", true}
	check("parameters", func() (any, error) {
		found := map[string]any{}
		for i, name := range names {
			counted, err := rows(db, "select count(*) from sales where "+name+" = $1", values[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			found[name] = counted
		}
		return found, nil
	})
	check("in", ask("select count(*) from sales where qty in ($1,$2)", 1, 2))
	check("any", ask("select count(*) from sales where qty = any($1) and region = any($2)", pq.Array([]int64{1, 2}), pq.Array([]string{"north"})))
	check("nulls", func() (any, error) {
		var note sql.NullString
		err := db.QueryRow("select note from sales where id = $1", 4).Scan(&note)
		return note.Valid, err
	})
	check("null parameter", ask("select count(*) from sales where note = $1", nil))
	check("tables", ask("select tablename from pg_tables where schemaname = 'public'"))
	check("columns", ask("select column_name, data_type, is_nullable from information_schema.columns where table_name = 'sales' order by ordinal_position"))
	check("prepared", func() (any, error) {
		statement, err := db.Prepare("select count(*) from sales where region = $1 and qty < $2")
		if err != nil {
			return nil, err
		}
		defer statement.Close()
		found := []int{}
		for _, region := range []string{"north", "south"} {
			var n int
			if err := statement.QueryRow(region, 3).Scan(&n); err != nil {
				return nil, err
			}
			found = append(found, n)
		}
		return found, nil
	})
	check("statements", func() (any, error) {
		answer, err := db.Query("select 1; select count(*) from sales")
		if err != nil {
			return nil, err
		}
		defer answer.Close()
		found := []int{}
		for more := true; more; more = answer.NextResultSet() {
			for answer.Next() {
				var n int
				if err := answer.Scan(&n); err != nil {
					return nil, err
				}
				found = append(found, n)
			}
		}
		return found, answer.Err()
	})
	check("errors", func() (any, error) {
		found := []string{}
		for _, text := range []string{"select nosuch from sales", "select 1 from nosuch", "selec 1", "select nosuch(1)", "select 'x'::int"} {
			_, err := rows(db, text)
			found = append(found, code(err))
		}
		return found, nil
	})
	check("transaction", func() (any, error) {
		part, err := db.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelSerializable})
		if err != nil {
			return nil, err
		}
		_, inside := rows(part, "select nosuch from sales")
		_, aborted := rows(part, "select 1")
		part.Rollback()
		after, err := rows(db, "select 1")
		return []any{code(inside), code(aborted), after}, err
	})
	check("cursor", func() (any, error) {
		part, err := db.Begin()
		if err != nil {
			return nil, err
		}
		defer part.Rollback()
		if _, err := part.Exec("declare nm cursor for " + many); err != nil {
			return nil, err
		}
		for count := 0; ; {
			found, err := rows(part, "fetch 700 from nm")
			if err != nil || len(found) == 0 {
				return count, err
			}
			count += len(found)
		}
	})
	check("cancel", func() (any, error) {
		limited, stop := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer stop()
		_, err := db.ExecContext(limited, "select pg_sleep(20)")
		return code(err), nil
	})
	check("estimate", func() (any, error) {
		var n float64
		err := db.QueryRow("select count(*) from sales where illness = 'flu'").Scan(&n)
		return n, err
	})
}
