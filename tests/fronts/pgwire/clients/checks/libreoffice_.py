"""LibreOffice Base's own PostgreSQL driver (SDBC), without a window."""

import os
import subprocess
import tempfile
import time

import uno
from com.sun.star.beans import PropertyValue
from report import ESTIMATE, ROWS, SELECT, check, failed, variables, version

host, port, user, password, database = variables()


def prop(name, value):
    made = PropertyValue()
    made.Name, made.Value = name, value
    return made


def office(folder):
    pipe = f"checks{os.getpid()}"
    process = subprocess.Popen(
        ["soffice", "--headless", "--norestore", "--nologo", f"-env:UserInstallation=file://{folder}",
         f"--accept=pipe,name={pipe};urp;"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    local = uno.getComponentContext()
    resolver = local.ServiceManager.createInstanceWithContext(
        "com.sun.star.bridge.UnoUrlResolver", local
    )
    for _ in range(300):
        try:
            return process, resolver.resolve(
                f"uno:pipe,name={pipe};urp;StarOffice.ComponentContext"
            )
        except Exception:
            time.sleep(0.2)
    raise TimeoutError("LibreOffice did not start")


def lists(result, width=0):
    # What the catalog gives has no metadata: its width is that of the specification.
    width = width or result.getMetaData().getColumnCount()
    found = []
    while result.next():
        row = []
        for index in range(1, width + 1):
            text = result.getString(index)
            row.append(None if result.wasNull() else text)
        found.append(row)
    return found


with tempfile.TemporaryDirectory() as folder:
    process, context = office(folder)
    try:
        manager = context.ServiceManager
        settings = manager.createInstanceWithContext(
            "com.sun.star.configuration.ConfigurationProvider", context
        )
        node = settings.createInstanceWithArguments(
            "com.sun.star.configuration.ConfigurationAccess",
            (prop("nodepath", "/org.openoffice.Setup/Product"),),
        )
        version(node.getByName("ooSetupVersionAboutBox"))
        drivers = manager.createInstanceWithContext("com.sun.star.sdbc.DriverManager", context)
        url = f"sdbc:postgresql:host={host} port={port} dbname={database}"

        def connect(password=password):
            return drivers.getConnectionWithInfo(
                url, (prop("user", user), prop("password", password))
            )

        check("password")(
            lambda: failed(
                lambda: connect("wrong"), lambda p: "password authentication failed" in str(p)
            )
        )
        con = connect()

        def rows(text):
            return lists(con.createStatement().executeQuery(text))

        def bound(text, *values):
            asked = con.prepareStatement(text)
            for index, value in enumerate(values, 1):
                (asked.setLong if isinstance(value, int) else asked.setString)(index, value)
            return lists(asked.executeQuery())

        meta = con.getMetaData()
        check("connect")(lambda: rows("select current_user, current_database()"))
        check("select")(lambda: rows(SELECT))
        check("tables")(
            lambda: [row[1:4] for row in lists(meta.getTables(None, "public", "%", ("TABLE",)), 5)]
        )
        check("columns")(
            lambda: [row[2:9] for row in lists(meta.getColumns(None, "public", "sales", "%"), 18)]
        )
        check("keys")(lambda: lists(meta.getPrimaryKeys(None, "public", "sales"), 6))
        check("schemas")(lambda: ["public"] in [row[:1] for row in lists(meta.getSchemas(), 1)])
        check("types of the server")(lambda: len(lists(meta.getTypeInfo())) > 10)
        check("indexes")(
            lambda: lists(meta.getIndexInfo(None, "public", "sales", False, False), 13)
        )
        check("names of tables")(
            lambda: [
                name for name in con.getTables().getElementNames() if name.startswith("public.")
            ]
        )

        @check("table")
        def _():
            columns = con.getTables().getByName("public.sales").getColumns()
            return [[name, columns.getByName(name).TypeName] for name in columns.getElementNames()]

        @check("types")
        def _():
            result = con.createStatement().executeQuery("select * from sales where id = 7")
            said = result.MetaData
            return [
                [said.getColumnName(i), said.getColumnTypeName(i), said.getColumnType(i)]
                for i in range(1, said.ColumnCount + 1)
            ]

        check("parameters")(
            lambda: bound("select count(*) from sales where region = ? and qty = ?", "north", 3)
        )
        check("in")(lambda: bound("select count(*) from sales where qty in (?,?)", 1, 2))
        check("nulls")(lambda: rows("select id, note from sales where id in (4, 5) order by id"))
        check("error")(lambda: failed(lambda: rows("select nosuch from sales"), lambda p: "error"))
        check("rows")(lambda: len(rows(ROWS)))
        check("estimate")(lambda: rows(ESTIMATE)[0][0])
        con.close()
    finally:
        process.terminate()
        process.wait(30)
