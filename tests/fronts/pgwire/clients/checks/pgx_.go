// pgx: binary results, prepared statements by itself, batches, arrays, COPY, deadlines.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
)

var background = context.Background()
var con *pgx.Conn

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

func collect(answer pgx.Rows, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	found := []string{}
	for answer.Next() {
		row, err := answer.Values()
		if err != nil {
			return nil, err
		}
		parts := []string{}
		for _, value := range row {
			parts = append(parts, fmt.Sprintf("%T %v", value, value))
		}
		found = append(found, strings.Join(parts, "|"))
	}
	return found, answer.Err()
}

func rows(text string, values ...any) ([]string, error) {
	return collect(con.Query(background, text, values...))
}

func ask(text string, values ...any) func() (any, error) {
	return func() (any, error) { return rows(text, values...) }
}

func code(err error) string {
	var problem *pgconn.PgError
	if errors.As(err, &problem) {
		return problem.Code
	}
	return fmt.Sprint(err)
}

func main() {
	version, _ := os.ReadFile("version")
	fmt.Printf("{\"version\": %q}\n", strings.TrimSpace(string(version)))
	check("password", func() (any, error) {
		_, err := pgx.Connect(background, "sslmode=disable password=wrong")
		return code(err), nil
	})
	var err error
	con, err = pgx.Connect(background, "sslmode=disable")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer con.Close(background)
	many := "select id, region, amount, day from sales order by id"
	check("connect", ask("select current_user::text, current_database()::text"))
	check("select", ask("select region, count(*) from sales group by region order by region"))
	check("types", ask("select id, amount, price, day, ts, member, active, note, region from sales where id = 7"))
	day := time.Date(2024, 1, 8, 0, 0, 0, 0, time.UTC)
	at := time.Date(2024, 1, 1, 12, 7, 0, 0, time.UTC)
	names := []string{"region", "qty", "amount", "price", "day", "ts", "member", "active"}
	values := []any{"north", 3, 7.5, "7.25", day, at, "00000000-0000-4000-8000-000000000007", true}
	check("parameters", func() (any, error) {
		found := map[string]any{}
		for i, name := range names {
			counted, err := rows("select count(*) from sales where "+name+" = $1", values[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			found[name] = counted
		}
		return found, nil
	})
	check("simple protocol", ask("select count(*) from sales where qty in ($1,$2) and region = $3", pgx.QuerySimpleProtocol(true), 1, 2, "north"))
	check("in", ask("select count(*) from sales where qty in ($1,$2)", 1, 2))
	check("any", ask("select count(*) from sales where qty = any($1) and region = any($2)", []int64{1, 2}, []string{"north"}))
	check("nulls", ask("select note from sales where id = $1", 4))
	check("null parameter", ask("select count(*) from sales where note = $1", nil))
	check("tables", ask("select tablename::text from pg_tables where schemaname = 'public'"))
	check("columns", func() (any, error) {
		said, err := con.Prepare(background, "star", "select * from sales where qty = $1")
		if err != nil {
			return nil, err
		}
		found := []any{said.ParamOIDs}
		for _, field := range said.Fields {
			found = append(found, []any{string(field.Name), field.DataTypeOID, field.TypeModifier, field.TableAttributeNumber, field.TableOID > 0})
		}
		return found, nil
	})
	check("batch", func() (any, error) {
		batch := &pgx.Batch{}
		for n := 0; n < 3; n++ {
			batch.Queue("select count(*) from sales where qty = $1", n)
		}
		sent := con.SendBatch(background, batch)
		defer sent.Close()
		found := []any{}
		for n := 0; n < 3; n++ {
			part, err := collect(sent.Query())
			if err != nil {
				return nil, err
			}
			found = append(found, part)
		}
		return found, nil
	})
	check("statements", func() (any, error) {
		all, err := con.PgConn().Exec(background, "select 1; select count(*) from sales").ReadAll()
		found := []string{}
		for _, each := range all {
			found = append(found, string(each.Rows[0][0])+" "+each.CommandTag.String())
		}
		return found, err
	})
	check("errors", func() (any, error) {
		found := []string{}
		for _, text := range []string{"select nosuch from sales", "select 1 from nosuch", "selec 1", "select nosuch(1)", "select 'x'::int"} {
			_, err := rows(text)
			found = append(found, code(err))
		}
		return found, nil
	})
	check("transaction", func() (any, error) {
		part, err := con.BeginTx(background, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			return nil, err
		}
		_, inside := rows("select nosuch from sales")
		_, aborted := rows("select count(*) from sales")
		part.Rollback(background)
		after, err := rows("select 1")
		return []any{code(inside), code(aborted), after}, err
	})
	check("rows", func() (any, error) { found, err := rows(many); return len(found), err })
	check("copy", func() (any, error) {
		var target bytes.Buffer
		tag, err := con.PgConn().CopyTo(background, &target, "copy ("+many+") to stdout")
		return []any{tag.String(), strings.Count(target.String(), "\n")}, err
	})
	check("estimate", func() (any, error) {
		var n float64
		err := con.QueryRow(background, "select (count(*))::float8 from sales where illness = 'flu'").Scan(&n)
		return n, err
	})
	check("cancel", func() (any, error) {
		_, err := con.Exec(background, "set statement_timeout = 300")
		if err != nil {
			return nil, err
		}
		_, err = con.Exec(background, "select pg_sleep(20)")
		return code(err), nil
	})
}
