package runner

import (
	"errors"
	"math"
	"path"
	"slices"
	"strings"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// share syncs the files of a sandbox with those of its session. It returns the files that the session got, as
// "output/name". Nil: the sandbox's files are stored at its end.
type share func() ([]string, error)

// sharing returns the share of a sandbox, with its current files as the baseline; nil if the sandbox cannot share.
func sharing(sb sandbox.Sandbox, ws *workspace.Workspace, places []kept) share {
	give := sb.Abilities().Share
	if ws == nil || give == nil {
		return nil
	}
	share := func() (got []string, err error) {
		for _, p := range places {
			names, lost := give(p.target, ws.Path(p.folder))
			for _, n := range names {
				got = append(got, p.name(n))
			}
			err = errors.Join(err, lost)
		}
		return got, err
	}
	if _, err := share(); err != nil {
		return nil // its files are stored at its end, as those of any sandbox
	}
	return share
}

// name returns the name of a file of a place, as artifacts have it: below /workspace, or absolute.
func (p kept) name(file string) string {
	return strings.TrimPrefix(path.Join(p.target, file), whole+"/")
}

// Share syncs the files of a running run with those of its session, if both the run and its sandbox support it. A
// file written by a script is then visible to a server that it calls, and vice versa.
func (r *Runner) Share(callID string) error {
	if s, ok := r.live.Load(callID); ok {
		_, err := s.(share)()
		return err
	}
	return nil
}

// leave stores the files that a run has left. For a sandbox that shares its files it stores the differences only.
func leave(sb sandbox.Sandbox, ws *workspace.Workspace, places []kept, give share, f *facts.Facts) {
	if give == nil {
		for _, p := range places {
			keep(sb, ws, p, f)
		}
		return
	}
	for _, p := range places {
		remove(ws, p, f)
	}
	if _, err := give(); err != nil {
		unkept(f, err)
	}
	for _, p := range places {
		files, _ := ws.List(p.folder, math.MaxInt)
		for _, file := range files {
			if slices.Contains(f.Files.Written, path.Join(p.target, file.Name)) {
				f.Files.Artifacts = append(f.Files.Artifacts, p.name(file.Name))
			}
		}
	}
}

// share lets a command share processes and ports with others of its named sandbox. It returns a warning if the
// contract grants the command something that the others must not get.
func (o Options) share(driver sandbox.Driver, p *sandbox.Profile, hosts bool, j job) (warning string) {
	_, can := driver.(sandbox.Reacher)
	switch {
	case o.Share == "" || !can:
	case hosts:
		return "this command has processes and ports of its own: its contract lets it reach hosts"
	default:
		p.Share = &sandbox.Share{Dir: o.Share, Apart: j.tools || len(j.env) > 0}
		p.Prestart = nil // a sandbox that waits shares nothing
	}
	return ""
}
