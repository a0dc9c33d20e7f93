package guest_test

import (
	"strings"
	"testing"

	"waldo/internal/sandbox/guest"
)

// stand are packages that look like matplotlib and pandas to the library, in a folder of the test's.
const stand = `
import os, sys, tempfile
at = tempfile.mkdtemp()
out = os.path.join(at, "output")
os.mkdir(out)
for name, text in {
    "matplotlib/__init__.py": "import os\nbackend = os.environ.get('MPLBACKEND')\n",
    "matplotlib/pyplot.py": '''
class Figure:
    def __init__(self, n): self.n = n
    def savefig(self, to, **_): open(to, "w").write("figure %d" % self.n)
figures = {}
def figure(n=None):
    n = n or len(figures) + 1
    return figures.setdefault(n, Figure(n))
def get_fignums(): return sorted(figures)
def close(which): figures.clear()
def show(): raise SystemExit("the backend has no screen")
''',
    "pandas/__init__.py": '''
class RangeIndex: pass
class Types(list):
    @property
    def iloc(self): return self
class Rows:
    def __init__(self, rows): self.rows = rows
    @property
    def values(self): return self
    def tolist(self): return self.rows
class DataFrame:
    index = RangeIndex()
    def __init__(self, rows): self.rows = rows
    columns, dtypes = ["n", "name"], Types(["int64", "string"])
    def __len__(self): return len(self.rows)
    def head(self, n): return Rows(self.rows[:n])
    def to_csv(self, path, index): open(path, "w").write("all %d" % len(self.rows))
''',
}.items():
    os.makedirs(os.path.dirname(os.path.join(at, name)), exist_ok=True)
    open(os.path.join(at, name), "w").write(text)
sys.path.insert(0, at)
import waldo
waldo._OUTPUT = out
def there(): return ", ".join("%s: %s" % (n, open(os.path.join(out, n)).read()) for n in sorted(os.listdir(out)))
`

func TestShowsFigures(t *testing.T) {
	for why, c := range map[string][2]string{
		"plt.show saves what is open and closes it": {`
import matplotlib, matplotlib.pyplot as plt
plt.figure(); plt.figure(); plt.show()
print(matplotlib.backend, there(), plt.get_fignums())`, "Agg figure-1.png: figure 1, figure-2.png: figure 2 []"},
		"a figure that the script saved to output is not saved twice": {`
import matplotlib.pyplot as plt
plt.figure().savefig(out + "/mine.png"); plt.show()
print(there())`, "mine.png: figure 1"},
		"one that it saved elsewhere is": {`
import matplotlib.pyplot as plt
plt.figure().savefig(at + "/mine.png"); plt.show()
print(there())`, "figure-1.png: figure 1"},
		"names that are taken are left alone": {`
open(out + "/figure-1.png", "w").write("old")
from matplotlib.pyplot import figure, show
figure(); show()
print(there())`, "figure-1.png: old, figure-2.png: figure 1"},
		"show and Figure.show take one figure": {`
import matplotlib.pyplot as plt
waldo.show(plt.figure()); plt.figure().show()
print(there())`, "figure-1.png: figure 1, figure-2.png: figure 2"},
		"without pyplot nothing is loaded": {`print("matplotlib" in sys.modules)`, "False"},
	} {
		t.Run(why, func(t *testing.T) {
			same(t, run(t, nil, guest.Script{Lang: guest.Python, Code: []byte(stand + c[0])}, ""), 0, c[1])
		})
	}
}

func TestShowsTables(t *testing.T) {
	long := "table: 12 rows, 2 columns\n  n: int64\n  name: string\nfirst 5 rows:\nn,name\n0,a\n1,a\n2,a\n3,a\n4,a\n" +
		"all of it: OUT/table-1.csv"
	for why, c := range map[string][2]string{
		"the value of the last line": {
			"import pandas\nwaldo._free = lambda kind, ending: 'OUT/table-1.csv'\npandas.DataFrame.to_csv = lambda *a, **k: " +
				"None\npandas.DataFrame([[i, 'a'] for i in range(12)])", long,
		},
		"show": {"import pandas\nshow(pandas.DataFrame([[1, 'a']]), 7)",
			"table: 1 row, 2 columns\n  n: int64\n  name: string\nall rows:\nn,name\n1,a\n7"},
		"a long cell is cut": {"import pandas\nshow(pandas.DataFrame([[1, 'x' * 100]]))",
			"table: 1 row, 2 columns\n  n: int64\n  name: string\nall rows:\nn,name\n1,…"},
		"the file has all rows": {
			"import pandas\nshow(pandas.DataFrame([[i, 'a'] for i in range(12)]))\nprint(there())",
			strings.ReplaceAll(long, "OUT/table-1.csv", "TMP") + "\ntable-1.csv: all 12",
		},
		"another last value stays silent": {"import pandas\n7", ""},
		"a last line that is awaited": {"import pandas\nasync def f(): return pandas.DataFrame([[1, 'a']])\nawait f()",
			"table: 1 row, 2 columns\n  n: int64\n  name: string\nall rows:\nn,name\n1,a"},
	} {
		t.Run(why, func(t *testing.T) {
			code := stand + c[0]
			if strings.Contains(c[1], "TMP") {
				code = strings.Replace(code, "print(there())", "print(there())\nprint(out)", 1)
			}
			r := start(t, nil, guest.Script{Lang: guest.Python, Code: []byte(code)}, "", false)
			want := c[1]
			if strings.Contains(want, "TMP") {
				at := strings.LastIndexByte(strings.TrimSpace(r.stdout), '\n')
				out := strings.TrimSpace(r.stdout)[at+1:]
				want = strings.ReplaceAll(want, "TMP", out+"/table-1.csv") + "\n" + out
			}
			same(t, r, 0, want)
		})
	}
}

// TestLineNumbersWithTables: a script that names pandas has the lines of its errors.
func TestLineNumbersWithTables(t *testing.T) {
	r := run(t, nil, guest.Script{Lang: guest.Python, Name: "a.py", Code: []byte("# pandas\n\n1 / 0\n")}, "")
	if r.exit != 1 || !strings.Contains(r.stderr, `File "a.py", line 3`) || !strings.Contains(r.stderr, "1 / 0") {
		t.Errorf("%d %s", r.exit, r.stderr)
	}
}
