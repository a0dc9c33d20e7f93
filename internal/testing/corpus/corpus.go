// Package corpus reads the rows of the attack corpora that tests judge. Rows in their authors' own words (CC0) are in
// testdata. Where the whole corpora lie beside the repository, in ../shared/corpora, their other rows are judged too.
package corpus

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/testing/repo"
)

//go:embed testdata
var embedded embed.FS // for tests that run outside of the repository, too

// vendored are the files of testdata; beside are those of the whole corpora, or none.
func vendored() fs.FS {
	dir, err := fs.Sub(embedded, "testdata")
	if err != nil {
		panic(err) // the name is no path
	}
	return dir
}

func beside() fs.FS {
	if root, ok := repo.Find(); ok {
		return os.DirFS(filepath.Join(root, "..", "shared", "corpora"))
	}
	return embed.FS{}
}

// Whole reports whether the whole corpora lie beside the repository.
func Whole(t testing.TB) bool {
	t.Helper()
	_, err := fs.Stat(beside(), "mcp.jsonl")
	return err == nil
}

// Beside is the path of a file below ../shared, or the end of the test where it is not there.
func Beside(t testing.TB, path string) string {
	t.Helper()
	file := filepath.Join(repo.Root(t), "..", "shared", path)
	if _, err := os.Stat(file); err != nil {
		t.Skipf("../shared/%s is not here", path)
	}
	return file
}

// Least is the smallest number of rows that a test may have judged: of testdata alone, or of the whole corpora.
func Least(t testing.TB, own, whole int) int {
	t.Helper()
	if Whole(t) {
		return whole
	}
	return own
}

// Files are the names of all corpora.
func Files(t testing.TB) (names []string) {
	t.Helper()
	for _, dir := range []fs.FS{vendored(), beside()} {
		all, err := fs.Glob(dir, "*.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, all...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Rows reads the rows of a corpus, or those of some classes of it, and logs how many there are. A row that R cannot
// hold fails the test. Rows of one id are the same; those beside the repository count.
func Rows[R any](t testing.TB, file string, classes ...string) (rows []R) {
	t.Helper()
	whole, own := lines(t, beside(), file), lines(t, vendored(), file)
	known, copied, n := map[string]bool{}, map[string]bool{}, 0
	for _, line := range own {
		copied[idOf(t, line).ID] = true
	}
	for _, line := range append(whole, own...) {
		id := idOf(t, line)
		if known[id.ID] || len(classes) > 0 && !slices.Contains(classes, id.Class) {
			continue
		}
		known[id.ID] = true
		if copied[id.ID] {
			n++
		}
		rows = append(rows, decode[R](t, line, id))
	}
	switch {
	case !Whole(t):
		t.Logf("%s %v: %d rows of testdata; ../shared/corpora, with others, is not here", file, classes, n)
	default:
		t.Logf("%s %v: %d rows, %d of them in testdata", file, classes, len(rows), n)
	}
	return rows
}

// Definitions are lists of tools by file: the awkward ones of testdata, "synthetic/awkward", and those that were
// recorded of real servers, "live/NAME" and "repos/NAME", where the whole corpora are.
func Definitions(t testing.TB) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, dir := range []fs.FS{vendored(), beside()} {
		paths, err := fs.Glob(dir, "mcp-tools/*/*.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			b, err := fs.ReadFile(dir, path)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimSuffix(strings.TrimPrefix(path, "mcp-tools/"), ".json")
			all[name] = b
		}
	}
	t.Logf("definitions of tools of %d servers", len(all))
	return all
}

type id struct{ ID, Class, Reversed string }

func idOf(t testing.TB, line []byte) (out id) {
	t.Helper()
	if err := json.Unmarshal(line, &out); err != nil || out.ID == "" {
		t.Fatalf("a row without an id: %v: %.200s", err, line)
	}
	return out
}

// decode reads a row. Invented secrets are written backwards, so that no scanner takes them for real ones.
func decode[R any](t testing.TB, line []byte, is id) (row R) {
	t.Helper()
	err := json.Unmarshal(line, &row)
	if is.Reversed != "" && err == nil {
		b := []rune(is.Reversed)
		slices.Reverse(b)
		err = json.Unmarshal([]byte(string(b)), &row)
	}
	if err != nil {
		t.Fatalf("%s: %v", is.ID, err)
	}
	return row
}

func lines(t testing.TB, dir fs.FS, file string) (all [][]byte) {
	t.Helper()
	b, err := fs.ReadFile(dir, file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if len(bytes.TrimSpace(line)) > 0 {
			all = append(all, line)
		}
	}
	return all
}
