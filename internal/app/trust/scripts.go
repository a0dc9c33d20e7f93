package trust

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"waldo/internal/app/fault"
)

// maxScripts bounds how many programs start each other by their first line. Linux allows five (exec.c).
const maxScripts = 5

// maxLine bounds a first line in bytes. Linux reads 256 of it, and macOS 512.
const maxLine = 512

// take records the files that a command names in the folder, and those that the "#!" lines of these files name.
func (f *folder) take(c command) error {
	f.lines = nil
	words := c.words
	for range maxScripts + 1 {
		before := len(f.lines)
		c.words = append(slices.Clone(words), lineWords(f.lines)...)
		if err := f.takeWords(c); err != nil || len(f.lines) == before {
			return err
		}
	}
	return &fault.Error{Usage: true,
		Text: fmt.Sprintf("the command of %s starts more than %d programs by #! lines", c.what, maxScripts),
		Tip:  "name the last of them in the command"}
}

// follow notes the "#!" line of a file that a command names, and records the pyvenv.cfg of its virtual environment.
// Python finds that file beside a program or above it, by the program's name and not by where its links lead.
func (f *folder) follow(path string) error {
	if line := firstLine(path); line != "" && !slices.Contains(f.lines, line) {
		f.lines = append(f.lines, line)
	}
	dir := filepath.Dir(path)
	for _, file := range []string{filepath.Join(dir, pyvenv), filepath.Join(filepath.Dir(dir), pyvenv)} {
		if !f.holds(file) {
			continue
		}
		if _, err := f.file(file); err != nil {
			return err
		}
	}
	return nil
}

const pyvenv = "pyvenv.cfg"

// firstLine returns what follows "#!" in a regular file; otherwise it is empty.
func firstLine(path string) string {
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxLine))
	if err != nil || !bytes.HasPrefix(b, []byte("#!")) {
		return ""
	}
	b, _, _ = bytes.Cut(b[2:], []byte("\n"))
	return strings.TrimSpace(string(b))
}

// lineWords returns the words of "#!" lines. The kernel gives all behind the first as one word.
func lineWords(lines []string) (out []string) {
	for _, line := range lines {
		out = append(out, strings.Fields(line)...)
		if i := strings.IndexAny(line, " \t"); i > 0 {
			out = append(out, strings.TrimSpace(line[i:]))
		}
	}
	return out
}

// cluster matches short options that stand together, with a file's name behind the last: -nfx.sed. Its letters are
// bounded.
var cluster = regexp.MustCompile(`^-[A-Za-z0-9]{2,16}`)

// clustered returns each end of such a word that can be a file's name. One behind an m can be a module of Python.
func clustered(word string) (out []string) {
	for i := 3; i <= len(cluster.FindString(word)) && i < len(word); i++ {
		if word[i-1] == 'm' {
			out = append(out, "-m")
		}
		out = append(out, word[i:])
	}
	return out
}
