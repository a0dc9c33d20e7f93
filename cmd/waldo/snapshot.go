package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/lifecycle"
	"waldo/internal/workspace"
)

func newSandboxSnapshot(g *global) *cobra.Command {
	var list bool
	var remove string
	c := &cobra.Command{
		Use: "snapshot NAME", Short: "Keep a sandbox's files as they are now; content that is kept already takes no room", Args: cobra.MaximumNArgs(1),
		Example: "  waldo sandbox snapshot work\n  waldo sandbox snapshot --list\n  waldo sandbox create copy --from p_…\n  waldo sandbox snapshot --rm p_…",
		RunE: withBoxes(g, func(c *cobra.Command, _ *house, m *lifecycle.Manager, args []string) error {
			switch {
			case list && remove == "" && len(args) == 0:
				return listSnapshots(c, g, m)
			case remove != "" && !list && len(args) == 0:
				return m.Forget(c.Context(), owner(), remove)
			case len(args) != 1 || list || remove != "":
				return usage("waldo sandbox snapshot NAME", "give one sandbox, or --list, or --rm ID")
			}
			p, err := m.Snapshot(c.Context(), owner(), args[0])
			if err != nil || g.json {
				return orJSON(c, err, p)
			}
			fmt.Fprintln(c.OutOrStdout(), p.ID)
			fmt.Fprintf(c.ErrOrStderr(), "%s, %s, of which %s new\n", count(p.Files, "file"), megabytes(p.Bytes), megabytes(p.New))
			return nil
		}),
	}
	c.Flags().BoolVar(&list, "list", false, "list your snapshots")
	c.Flags().StringVar(&remove, "rm", "", "delete the snapshot `ID`")
	return c
}

func listSnapshots(c *cobra.Command, g *global, m *lifecycle.Manager) error {
	all, err := m.Snapshots(c.Context(), owner())
	if err != nil || g.json {
		return orJSON(c, err, all)
	}
	for _, p := range all {
		fmt.Fprintf(c.OutOrStdout(), "%s  %s  %s  %s  %s\n", p.ID, p.Of.Name, p.Created.Format(time.RFC3339), count(p.Files, "file"), megabytes(p.Bytes))
	}
	return nil
}

func newSandboxRestore(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "restore NAME SNAPSHOT", Short: "Give a sandbox the files of a snapshot in place of its own", Args: cobra.ExactArgs(2),
		Example: "  waldo sandbox restore work p_…",
		RunE: withBoxes(g, func(c *cobra.Command, _ *house, m *lifecycle.Manager, args []string) error {
			_, err := m.Restore(c.Context(), owner(), args[0], args[1])
			return err
		}),
	}
}

func newSandboxCopy(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "cp SRC DST", Short: "Copy files into a sandbox or out of it", Args: cobra.ExactArgs(2),
		Long: "One of the two is NAME:PATH, where PATH is below input or output, as the code finds it in /workspace. A folder is\n" +
			"copied with what is in it: regular files and folders alone, no links. With - for SRC a tar is unpacked from standard input.",
		Example: "  waldo sandbox cp data.csv work:input/data.csv\n  waldo sandbox cp ./project work:input/project\n  waldo sandbox cp work:output/report.pdf .\n  tar c . | waldo sandbox cp - work:input",
		RunE: withBoxes(g, func(c *cobra.Command, _ *house, m *lifecycle.Manager, args []string) error {
			from, fromIn := inBoxPath(args[0])
			to, toIn := inBoxPath(args[1])
			if fromIn == toIn {
				return usage("waldo sandbox cp FILE NAME:input/FILE", "one of the two must be NAME:PATH")
			}
			in := to
			if fromIn {
				in = from
			}
			s, w, err := m.Files(c.Context(), owner(), in.name)
			if err != nil {
				return err
			}
			defer w.Close()
			if fromIn {
				return copyOut(w, from, args[1])
			}
			return copyIn(c.InOrStdin(), w, args[0], to, s.Limits.Disk, int(s.Limits.Inodes))
		}),
	}
}

// inside is a path in a sandbox.
type inside struct {
	name   string
	folder workspace.Folder
	path   string // below the folder; empty: the folder itself
}

// inBoxPath reads NAME:PATH. What has a slash before the first colon, or no colon, is a path of this machine.
func inBoxPath(s string) (inside, bool) {
	name, rest, ok := strings.Cut(s, ":")
	if !ok || name == "" || strings.ContainsAny(name, "/.") {
		return inside{}, false
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "/workspace"), "/")
	folder, file, _ := strings.Cut(rest, "/")
	return inside{name, workspace.Folder(folder), strings.TrimSuffix(file, "/")}, true
}

func (i inside) check() error {
	if i.folder != workspace.Input && i.folder != workspace.Output {
		return usage("as in work:input/data.csv", "%s:%s: files are kept below input and output", i.name, i.folder)
	}
	return nil
}

// copyIn copies a file, a folder or a tar into a workspace, which holds at most disk bytes and
// inodes files in the folder afterwards.
func copyIn(stdin io.Reader, w *workspace.Workspace, from string, to inside, disk int64, inodes int) error {
	if err := to.check(); err != nil {
		return err
	}
	files, err := w.List(to.folder, math.MaxInt)
	if err != nil {
		return err
	}
	b := workspace.Bounds{Bytes: disk, Entries: inodes - len(files)}
	for _, f := range files {
		b.Bytes -= f.Size
	}
	if from == "-" {
		u, err := w.ExtractTar(to.folder, to.path, stdin, b)
		if err == nil && len(u.Skipped) > 0 {
			err = fmt.Errorf("left out: %s", strings.Join(u.Skipped, ", "))
		}
		return err
	}
	st, err := os.Stat(from)
	if err != nil {
		return usage("give a file or folder that is there", "%v", err)
	}
	if !st.IsDir() {
		if to.path == "" || strings.HasSuffix(to.path, "/") {
			to.path = path.Join(to.path, filepath.Base(from))
		}
		return copyFileIn(w, from, to.folder, to.path, &b)
	}
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return copyFileIn(w, p, to.folder, path.Join(to.path, filepath.ToSlash(rel)), &b)
	})
}

func copyFileIn(w *workspace.Workspace, from string, folder workspace.Folder, name string, b *workspace.Bounds) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return usage("give a file or a folder", "%s is neither", from)
	}
	if b.Bytes -= st.Size(); b.Bytes < 0 {
		return fmt.Errorf("%s: the sandbox has no room for it: %w", from, workspace.ErrTooMuch)
	}
	if b.Entries--; b.Entries < 0 {
		return fmt.Errorf("%s: the sandbox holds no more files: %w", from, workspace.ErrTooMuch)
	}
	if err := w.Put(folder, name, f, st.Size()); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if st.Mode()&0o100 != 0 {
		return w.Executable(folder, name)
	}
	return nil
}

// copyOut copies a file or a folder of a workspace to this machine. Code in a box may have made
// them: no name of theirs, and no link that is there already, leads out of the folder copied to.
func copyOut(w *workspace.Workspace, from inside, to string) error {
	if err := from.check(); err != nil {
		return err
	}
	files, err := w.List(from.folder, math.MaxInt)
	if err != nil {
		return err
	}
	st, serr := os.Stat(to)
	folder := serr == nil && st.IsDir()
	copied := 0
	for _, f := range files {
		rel, below := strings.CutPrefix(f.Name, from.path+"/")
		switch {
		case f.Name == from.path && !folder:
			return copyFileOut(w, from.folder, f, filepath.Dir(to), filepath.Base(to))
		case f.Name == from.path:
			return copyFileOut(w, from.folder, f, to, path.Base(f.Name))
		case from.path == "":
			rel, below = f.Name, true
		case folder:
			rel = path.Join(path.Base(from.path), rel)
		}
		if !below {
			continue
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := copyFileOut(w, from.folder, f, to, rel); err != nil {
			return err
		}
		copied++
	}
	if copied == 0 {
		return usage("waldo sandbox exec NAME -- ls -R /workspace", "%s: no file %s/%s", from.name, from.folder, from.path)
	}
	return nil
}

func copyFileOut(w *workspace.Workspace, folder workspace.Folder, f workspace.File, dir, name string) error {
	src, err := w.Get(folder, f.Name)
	if err != nil {
		return err
	}
	defer src.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	name = filepath.FromSlash(name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mode := fs.FileMode(0o644)
	if f.Exec {
		mode = 0o755
	}
	dst, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
