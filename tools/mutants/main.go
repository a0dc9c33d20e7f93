// Command mutants switches each guard off in turn and fails unless the suite notices. A guard is
// a line of code named in guards.txt; a mutant is the tree with that line changed. With an
// argument it tries the guards whose name or file holds it. With -since it tries what changed
// after a revision and a share of the rest, and with -for only as many as fit in that time.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// guard is one change to make, and the tests that must fail for it.
type guard struct {
	line     int    // in guards.txt
	name     string // the purpose of the guard
	in       string // the package and declaration of from, see anchor.go
	file     string // the file of from; with in, where it was found
	from, to string // the one occurrence of from becomes to
	pkg, run string // go test pkg -run run
}

func (g guard) String() string { return fmt.Sprintf("%s:%d: %s", list, g.line, g.name) }

const (
	list     = "tools/mutants/guards.txt"
	patience = 60 * time.Second // for one mutant's tests: one that makes them hang is noticed
)

func main() {
	var s selection
	flag.StringVar(&s.since, "since", "", "try what changed after this `revision`, and a share of the rest")
	flag.IntVar(&s.share, "share", 10, "with -since: try one in `N` of the guards that did not change")
	flag.DurationVar(&s.limit, "for", 0, "begin no guard after this `time`")
	flag.Parse()
	s.words = flag.Arg(0)
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(s selection) error {
	start := time.Now()
	all, err := read(list)
	if err != nil {
		return err
	}
	if err := stand(all); err != nil {
		return err
	}
	var before map[string]bool
	var changed map[string]bool
	var seed string
	if s.since != "" {
		if before, changed, seed, err = history(s.since); err != nil {
			return err
		}
	}
	guards := s.choose(all, before, changed, seed)
	if len(guards) == 0 {
		return errors.New("no guard was tried")
	}
	var end time.Time
	if s.limit > 0 {
		end = start.Add(s.limit)
	}
	survivors, tried, err := tryAll(guards, 2, end) // the one compiles while the tests of the other run
	if len(survivors) > 0 {
		fmt.Println("mutants: once more, with nothing beside them")
		var aerr error
		survivors, _, aerr = tryAll(survivors, 1, time.Time{})
		err = errors.Join(err, aerr)
	}
	if len(survivors) > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d guards can be switched off and no test notices", len(survivors), tried))
		for _, g := range survivors {
			err = errors.Join(err, fmt.Errorf("\t%v (%s)", g, g.file))
		}
	}
	if err != nil {
		return err
	}
	if tried == 0 {
		return fmt.Errorf("no guard was tried within %v", s.limit)
	}
	if tried < len(guards) {
		fmt.Printf("mutants: %d of the %d chosen guards did not fit into %v\n", len(guards)-tried, len(guards), s.limit)
	}
	fmt.Printf("mutants: %d of %d guards switched off in turn, every one noticed\n", tried, len(all))
	return nil
}

// stand locates the code of every guard before the first is tried, and sets its file.
func stand(guards []guard) error {
	var errs []error
	for i, g := range guards {
		file, _, err := g.locate()
		if err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", g, err))
			continue
		}
		guards[i].file = file
	}
	return errors.Join(errs...)
}

// tryAll tries the guards in order, together at a time, until end unless it is zero. It returns the guards that every
// test missed, and the number tried.
func tryAll(guards []guard, together int, end time.Time) (survivors []guard, done int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error // of guards that could not be tried: the others are, so that one run tells all
	next := 0
	work := func() {
		for {
			mu.Lock()
			i := next
			next++
			mu.Unlock()
			if i >= len(guards) || !end.IsZero() && time.Now().After(end) {
				return
			}
			start := time.Now()
			at, terr := again(guards[i])
			mu.Lock()
			done++
			if terr != nil {
				errs = append(errs, fmt.Errorf("%v: %w", guards[i], terr))
			} else if at == 0 {
				survivors = append(survivors, guards[i])
			}
			tell(fmt.Sprintf("%3d/%d", done, len(guards)), guards[i], at, terr, start)
			mu.Unlock()
		}
	}
	for range together {
		wg.Go(work)
	}
	wg.Wait()
	return survivors, done, errors.Join(errs...)
}

// tell prints the result of a guard. For a late detection, it prints the try, since the test depends on a race.
func tell(which string, g guard, at int, err error, start time.Time) {
	word := "noticed "
	switch {
	case err != nil:
		word = "NOT TRIED"
	case at == 0:
		word = "SURVIVED"
	case at > 1:
		word = fmt.Sprintf("noticed at try %d", at)
	}
	fmt.Printf("%s %s %s (%s, %.1f s)\n", which, word, g.name, g.file, time.Since(start).Seconds())
}

// tries limits the tries of an undetected guard: a race can hide a mutant, most of all on a busy machine.
const tries = 4

// again tries a guard until a test notices, and returns the number of that try; 0: never.
func again(g guard) (at int, err error) {
	if err := control(g); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "waldo-mutant-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for at = range tries {
		if found, err := try(dir, g); err != nil || found {
			return at + 1, err
		}
	}
	return 0, nil
}

// controls remembers, for each test, whether it passes on the tree as it is.
var controls sync.Map // "package run" -> func() error

// control runs a guard's test on the unchanged tree, once for all guards of that test. If it fails or hangs, its
// failure for a mutant proves nothing.
func control(g guard) error {
	f, _ := controls.LoadOrStore(g.pkg+" "+g.run, sync.OnceValue(func() error {
		out, err := test(context.Background(), g.pkg, g.run, "-timeout", "5m") // a busy machine alone proves nothing
		// a test may trip once on a busy machine, not twice
		if err != nil {
			out, err = test(context.Background(), g.pkg, g.run, "-timeout", "5m")
		}
		if err != nil {
			return fmt.Errorf("control: %s -run %s fails on the tree as it is:\n%s", g.pkg, g.run, out)
		}
		if bytes.Contains(out, []byte("no tests to run")) {
			return fmt.Errorf("control: %s has no test %s: mend the list", g.pkg, g.run)
		}
		return nil
	}))
	return f.(func() error)()
}

func test(ctx context.Context, pkg, run string, more ...string) ([]byte, error) {
	args := append([]string{"test", "-vet=off", "-count=1", "-timeout", patience.String(), "-run", run}, more...)
	return exec.CommandContext(ctx, "go", append(args, pkg)...).CombinedOutput()
}

// try reports whether the tests notice the mutant. The change is laid over the tree with go's
// -overlay, so the checkout itself is never written to.
func try(dir string, g guard) (bool, error) {
	text, err := g.mutant()
	if err != nil {
		return false, err
	}
	mutant := filepath.Join(dir, "mutant"+filepath.Ext(g.file))
	if err := os.WriteFile(mutant, text, 0o600); err != nil {
		return false, err
	}
	abs, err := filepath.Abs(g.file)
	if err != nil {
		return false, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace":{%q:%q}}`, abs, mutant), 0o600); err != nil {
		return false, err
	}
	out, err := test(context.Background(), g.pkg, g.run, "-overlay", overlay)
	if bytes.Contains(out, []byte("[build failed]")) {
		return false, fmt.Errorf("the test does not build:\n%s", out)
	}
	return err != nil, nil
}

// read reads guards.txt.
func read(path string) ([]guard, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f, path)
}

// parse reads blocks of "key: value" lines. A blank line or the next guard ends a block. path is named in errors.
func parse(r io.Reader, path string) ([]guard, error) {
	var all []guard
	var g guard
	seen := map[string]bool{} // keys of the block
	n := 0
	flush := func() error {
		if g == (guard{}) {
			return nil
		}
		if g.name == "" || (g.file == "") == (g.in == "") || g.from == "" || g.pkg == "" || g.run == "" {
			return fmt.Errorf("%s:%d: a guard needs guard, in or file, from, to, test and run", path, g.line)
		}
		all, g = append(all, g), guard{}
		clear(seen)
		return nil
	}
	s := bufio.NewScanner(r)
	for s.Scan() {
		n++
		line := s.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.TrimSpace(line) == "" {
			if err := flush(); err != nil {
				return nil, err
			}
			continue
		}
		key, value, ok := strings.Cut(line, ": ")
		if !ok && !strings.HasSuffix(line, ":") {
			return nil, fmt.Errorf("%s:%d: wanted key: value", path, n)
		}
		value = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(value)
		key = strings.TrimSuffix(key, ":")
		if key == "guard" && seen[key] { // git joins two appended blocks without a blank line
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if seen[key] {
			return nil, fmt.Errorf("%s:%d: a second %s in one block", path, n, key)
		}
		seen[key] = true
		switch key {
		case "guard":
			g.name, g.line = value, n
		case "in":
			g.in = value
		case "file":
			g.file = value
		case "from":
			g.from = value
		case "to":
			g.to = value
		case "test":
			g.pkg = value
		case "run":
			g.run = value
		default:
			return nil, fmt.Errorf("%s:%d: unknown key %q", path, n, key)
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return all, flush()
}
