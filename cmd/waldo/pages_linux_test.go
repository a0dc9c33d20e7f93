package main

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"waldo/internal/testing/terminaltest"
)

// block is a fenced block of a page: its language, its lines, and why a test does not type it.
type block struct {
	line         int
	lang, reason string
	text         []string
}

// commands reports whether a reader types the block.
func (b block) commands() bool {
	return b.lang == "" && len(b.text) > 0 && (strings.HasPrefix(b.text[0], "$ ") || firstWord.MatchString(b.text[0]))
}

var (
	wholeFile = regexp.MustCompile(`^(version|capabilities):`)
	firstWord = regexp.MustCompile(`^(waldo|make|export|cd) [^:]*$`)
	notTyped  = regexp.MustCompile(`^ *<!-- not typed: (.+) -->$`)
	fenceAt   = regexp.MustCompile("^( *)```(?:console)?([a-z]*)$")
)

// blocks returns the fenced blocks of a page. The line before one may be the comment "not typed: " with a reason.
func blocks(text string) (out []block) {
	var open *block
	indent, reason := "", ""
	for i, line := range strings.Split(text, "\n") {
		m := fenceAt.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			indent, open = m[1], &block{line: i + 1, lang: m[2], reason: reason}
		case open != nil && m != nil:
			out, open = append(out, *open), nil
		case open != nil:
			open.text = append(open.text, strings.TrimPrefix(line, indent))
		default:
			reason = ""
			if m := notTyped.FindStringSubmatch(line); m != nil {
				reason = m[1]
			}
		}
	}
	return out
}

// reader is somebody who types the commands of a page, as an ordinary user with a home of their own.
type reader struct {
	t       *testing.T
	home    string
	uid     uint32
	seen    string            // all output so far
	instead map[string]string // of a page: what a reader types in place of a word
}

var (
	anID    = regexp.MustCompile(`\b(a|c|d|dg|n|p|s)_(…|[a-z2-7]{26})`)
	wholeID = regexp.MustCompile(`\b[a-z]+_[a-z2-7]{26}\b`)
)

// types runs one command and returns its output and exit code. An id in it is the newest of its kind that was seen.
func (r *reader) types(command string) (string, int) {
	for was, is := range r.instead {
		command = strings.ReplaceAll(command, was, is)
	}
	command = anID.ReplaceAllStringFunc(command, func(s string) string {
		kind, _, _ := strings.Cut(s, "_")
		if all := regexp.MustCompile(`\b`+kind+`_[a-z2-7]{26}`).FindAllString(r.seen, -1); len(all) > 0 {
			return all[len(all)-1]
		}
		return s
	})
	c := exec.CommandContext(r.t.Context(), "sh", "-c", "cd \"$(cat ~/.at)\"; . ~/.set\n"+command+
		"\nrc=$?; pwd >~/.at; export -p >~/.set; exit $rc")
	c.Env = []string{"HOME=" + r.home, "PATH=" + r.home + "/.local/bin:" + r.home + "/bin:/usr/local/bin:/usr/bin:/bin", "NO_COLOR=1", "LANG=C.UTF-8"}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: r.uid, Gid: r.uid}
	}
	c.WaitDelay = 5 * time.Second
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if forms.MatchString(command) {
		person, program := terminaltest.Pair(r.t)
		c.Stdin, c.Stdout, c.Stderr = program, program, program
		c.SysProcAttr.Setctty = true
		var seen terminaltest.Seen
		go seen.Read(person)
		ended := make(chan struct{})
		defer close(ended)
		go reply(person, &seen, ended)
		defer func() { r.seen += seen.Text() }()
	}
	err := c.Run()
	code := 0
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		code = e.ExitCode()
	} else if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	r.seen += out.String()
	return out.String(), code
}

// forms is a command that asks at a terminal; replies are its prompts and what is typed there.
var (
	forms   = regexp.MustCompile(`waldo approve (--enroll|a_)`)
	replies = map[string]string{
		"passphrase of ann: ": "four words of nothing", "or more): ": "four words of nothing",
		"the same again: ": "four words of nothing", "the last word of the capability: ": "delete_entities",
	}
)

// reply types the answer to each prompt once.
func reply(person *os.File, seen *terminaltest.Seen, ended <-chan struct{}) {
	typed := map[string]bool{}
	for {
		for prompt, answer := range replies {
			if !typed[prompt] && strings.HasSuffix(strings.TrimRight(seen.Text(), "\r\n"), prompt) {
				typed[prompt] = true
				_, _ = io.WriteString(person, answer+"\n")
			}
		}
		select {
		case <-ended:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// page types all blocks of commands of a page that give no reason.
func (r *reader) page(text string) (typed int) {
	for _, b := range blocks(text) {
		switch {
		case b.reason != "":
		case b.lang == "yaml" && len(b.text) > 0 && wholeFile.MatchString(b.text[0]):
			r.write("waldo.yaml", b.text)
		case b.lang == "json" && strings.Contains(b.text[0], "mcpServers"):
			r.write(".mcp.json", b.text)
		case b.commands():
			typed++
			r.block(b)
		}
	}
	return typed
}

// write leaves a file in the reader's folder.
func (r *reader) write(name string, lines []string) {
	r.types("cat >" + name + " <<'END'\n" + strings.Join(lines, "\n") + "\nEND")
}

// block types the commands of a block. Each must be one that waldo knows, and print what the page prints below it.
func (r *reader) block(b block) {
	prompts := strings.HasPrefix(b.text[0], "$ ")
	for i := 0; i < len(b.text); i++ {
		command, typed := strings.CutPrefix(b.text[i], "$ ")
		if prompts && !typed || strings.TrimSpace(command) == "" {
			continue
		}
		for (strings.HasSuffix(command, "\\") || strings.HasSuffix(command, "|")) && i+1 < len(b.text) {
			i++
			command += "\n" + b.text[i]
		}
		out, code := r.types(command)
		if code != 0 {
			r.t.Errorf("line %d: %s: exit code %d\n%s", b.line+i+1, command, code, out)
		}
		for j := i + 1; prompts && j < len(b.text) && !strings.HasPrefix(b.text[j], "$ "); j++ {
			if missing := lacks(out, b.text[j]); missing != "" {
				r.t.Errorf("line %d: after %q the page prints %q, of which %q is not in:\n%s", b.line+j+1, command, b.text[j],
					missing, out)
			}
		}
	}
}

var (
	varies = regexp.MustCompile(`sha256:[0-9a-f]+|[0-9]+`)
	times  = regexp.MustCompile(`[0-9]+[smh] ago|[0-9-]{10}T[0-9:.]+Z`)
)

// lacks returns a part of a page's line, between ellipses, that an output does not have; ids, numbers and spaces vary.
func lacks(out, line string) string {
	same := func(s string) string {
		s = times.ReplaceAllString(wholeID.ReplaceAllString(s, "ID"), "AT")
		return strings.Join(strings.Fields(varies.ReplaceAllString(s, "#")), " ")
	}
	out = same(out)
	for part := range strings.SplitSeq(strings.ReplaceAll(line, "/home/ann", "…"), "…") {
		part = same(part)
		if strings.HasPrefix(part, "Warnings:") {
			continue // they are the machine's
		}
		if len(part) > 3 && !strings.Contains(out, part) {
			return part
		}
	}
	return ""
}

// TestPages types the commands of README.md and of the quickstart, as an ordinary user reads them. A block that no test
// types says why, in a comment of the page.
func TestPages(t *testing.T) {
	world, err := txtar.ParseFile("testdata/pages.txtar")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	typed := 0
	for _, path := range []string{"../../README.md", "../../docs/quickstart.md"} {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			r := settle(t, world, name, self)
			typed += r.page(string(b))
			r.types("waldo stop --all") // what it left in the background
		})
	}
	if typed < 10 {
		t.Errorf("control: %d blocks were typed", typed)
	}
}

// settle makes a home for the reader of a page: the files of all/ and of the page's folder in the archive.
func settle(t *testing.T, world *txtar.Archive, page string, self []byte) *reader {
	home, err := os.MkdirTemp("", "waldo-pages-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	r := &reader{t: t, home: home, uid: 65533, instead: map[string]string{}}
	put := func(name string, b []byte, mode os.FileMode) {
		at := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, b, mode)); err != nil {
			t.Fatal(err)
		}
	}
	put(".local/bin/waldo", self, 0o755)
	put(".at", []byte(home), 0o644) // the folder that the reader begins in
	put(".set", nil, 0o644)
	for _, f := range world.Files {
		for _, of := range []string{"all/", page + "/"} {
			name, ok := strings.CutPrefix(f.Name, of)
			switch {
			case ok && name == "instead":
				for line := range strings.Lines(string(f.Data)) {
					was, is, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
					r.instead[was] = is
				}
			case ok && strings.HasPrefix(name, "bin/"):
				put(name, f.Data, 0o755)
			case ok:
				put(name, f.Data, 0o644)
			}
		}
	}
	srv := httptest.NewServer(&npmRegistry{dir: filepath.Join(home, "registry")})
	t.Cleanup(srv.Close)
	put(".npmrc", fmt.Appendf(nil, "registry=%s/\n", srv.URL), 0o644)
	if os.Geteuid() == 0 {
		err := filepath.WalkDir(home, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, int(r.uid), int(r.uid)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}
