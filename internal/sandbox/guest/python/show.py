# ---- figures and tables ----
# Part of waldo.py in a script and of session.py in a session. It gives the figures of matplotlib and the tables of
# pandas and polars a form that a model can read.

_OUTPUT = "/workspace/output"


def _free(kind, ending):
    # The first name in output that no file has: output/figure-1.png.
    number = 1
    while os.path.lexists("%s/%s-%d.%s" % (_OUTPUT, kind, number, ending)):
        number += 1
    return "%s/%s-%d.%s" % (_OUTPUT, kind, number, ending)


def _keep_figure(figure):
    # Saves a figure of matplotlib, unless the script has saved it to output itself.
    if not getattr(figure, "_waldo_saved", False):
        figure.savefig(_free("figure", "png"), format="png", bbox_inches="tight")


def _fonts():
    # Writes where the fonts are, for fc-list: a sandbox has no /etc/fonts.
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), "fonts.conf")
    try:
        with open(path, "w") as f:
            f.write("<fontconfig><dir>/usr/share/fonts</dir><cachedir>/tmp/fontconfig</cachedir></fontconfig>\n")
    except OSError:
        pass
    return path


def _prepare_plots(keep=_keep_figure):
    # Prepares the import of matplotlib: it draws without a screen, and pyplot shows figures by keep.
    os.environ.setdefault("MPLBACKEND", "Agg")
    if os.path.isdir("/usr/share/matplotlib") and not os.path.exists("/etc/matplotlibrc"):
        os.environ.setdefault("MATPLOTLIBRC", "/dev/null")  # Debian's looks in /etc, where a sandbox has none
    if not os.path.exists("/etc/fonts/fonts.conf"):
        os.environ.setdefault("FONTCONFIG_FILE", _fonts())

    class Plots:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "matplotlib.pyplot":
                return None
            sys.meta_path.remove(Plots)
            from importlib.util import find_spec
            spec = find_spec(name)
            if spec is not None:
                run = spec.loader.exec_module

                def exec_module(module):
                    run(module)
                    _hook_plots(module, keep)
                spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Plots)


def _hook_plots(plot, keep):
    # Makes plt.show() and Figure.show() give keep each figure, whatever the backend is. As with a window, shown
    # figures are closed.
    base = plot.Figure
    save = base.savefig

    def savefig(self, fname, *args, **kwargs):
        done = save(self, fname, *args, **kwargs)
        if isinstance(fname, (str, os.PathLike)) and os.path.abspath(os.fspath(fname)).startswith(_OUTPUT + "/"):
            self._waldo_saved = True
        return done

    def show(*args, **kwargs):
        for number in plot.get_fignums():
            keep(plot.figure(number))
        plot.close("all")

    base.savefig = savefig
    base.show = lambda self, *args, **kwargs: keep(self)
    plot.show = show


_ROWS, _COLUMNS, _CELL, _WHOLE = 5, 50, 60, 10  # of a summary; a table of at most _WHOLE rows is all in it


def _is_table(value):
    kind = type(value)
    return kind.__module__.split(".")[0] in ("pandas", "polars") and kind.__name__ in ("DataFrame", "Series")


def _cut(cell):
    # Before the word that is too much, and before words with digits: a part of a secret is not known for one later.
    text = str(cell)
    if len(text) <= _CELL:
        return text
    words = text[:_CELL - 1].split(" ")[:-1]
    while words and any(c in "0123456789" for c in words[-1]):
        words.pop()
    return "".join(word + " " for word in words) + "\u2026"


def _frame(value):
    # Returns rows, columns as (name, type), the first rows as lists, and a function that writes all as CSV.
    if type(value).__module__.split(".")[0] == "polars":
        if type(value).__name__ == "Series":
            value = value.to_frame()
        names = [(n, str(t)) for n, t in zip(value.columns, value.dtypes)]
        return value.height, names, [list(r) for r in value.head(_WHOLE).rows()], value.write_csv
    if type(value).__name__ == "Series":
        value = value.to_frame(value.name if value.name is not None else "value")
    if type(value.index).__name__ != "RangeIndex":
        value = value.reset_index(names=[n if n is not None else "index" for n in value.index.names])
    names = []
    for at, name in enumerate(value.columns):
        kind = str(value.dtypes.iloc[at])
        if kind == "object":
            import pandas
            kind = {"string": "text"}.get(pandas.api.types.infer_dtype(value.iloc[:, at], skipna=True), "object")
        names.append((name if isinstance(name, str) else str(name), kind))
    return len(value), names, value.head(_WHOLE).values.tolist(), lambda path: value.to_csv(path, index=False)


def _table(value):
    # A summary with types: rows, columns, the first lines, and where all of it is.
    import csv, io
    rows, columns, first, write = _frame(value)
    lines = ["table: %d row%s, %d column%s" % (rows, "" if rows == 1 else "s", len(columns), "" if len(columns) == 1 else "s")]
    lines += ["  %s: %s" % (_cut(name), kind) for name, kind in columns[:_COLUMNS]]
    if len(columns) > _COLUMNS:
        lines.append("  and %d more columns" % (len(columns) - _COLUMNS))
    whole = rows <= _WHOLE
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(_cut(name) for name, _ in columns[:_COLUMNS])
    out.writerows([_cut(cell) for cell in row[:_COLUMNS]] for row in (first if whole else first[:_ROWS]))
    lines += ["all rows:" if whole else "first %d rows:" % _ROWS, text.getvalue().rstrip("\n")]
    if not whole or len(columns) > _COLUMNS:
        path = _free("table", "csv")
        try:
            write(path)
            lines.append("all of it: %s" % path)
        except OSError as e:
            lines.append("all of it could not be written to %s: %s" % (path, e))
    return "\n".join(lines)


def show(*values):
    """Shows values to the model: a figure as an image, a table as a summary with its rows in a file of output,
    anything else as print does."""
    for value in values:
        if hasattr(value, "savefig"):
            _keep_figure(value)
        elif _is_table(value):
            print(_table(value))
        else:
            print(value)
