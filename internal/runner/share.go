package runner

import (
	"math"
	"path"
	"slices"

	"waldo/internal/facts"
	"waldo/internal/sandbox"
	"waldo/internal/workspace"
)

// output is where a box has the session's output.
var output = path.Join("/workspace", string(workspace.Output))

// sharing returns what brings the files of a box and those of its session together, from what they are
// now; nil: there is nobody to share them with, or the box cannot.
func (r *Runner) sharing(box sandbox.Box, ws *workspace.Workspace) func() error {
	s, ok := box.(sandbox.Sharer)
	if !r.Shares || ws == nil || !ok {
		return nil
	}
	share := func() error {
		_, err := s.Share(output, ws.Path(workspace.Output))
		return err
	}
	if share() != nil {
		return nil // its files are kept at its end, as those of any box
	}
	return share
}

// Share brings the files of a run that is under way and those of its session together, where the run
// has them and its box can: what a script has written is there for a server that it calls, and back.
func (r *Runner) Share(callID string) error {
	if share, ok := r.live.Load(callID); ok {
		return share.(func() error)()
	}
	return nil
}

// leave keeps what a run has left, of a box that shares its files what is other there alone.
func leave(box sandbox.Box, ws *workspace.Workspace, share func() error, f *facts.Facts) {
	if share == nil {
		keep(box, ws, f)
		return
	}
	remove(ws, f)
	if err := share(); err != nil {
		unkept(f, err)
	}
	kept, _ := ws.List(workspace.Output, math.MaxInt)
	for _, k := range kept {
		if slices.Contains(f.Files.Written, path.Join(output, k.Name)) {
			f.Files.Artifacts = append(f.Files.Artifacts, path.Join(string(workspace.Output), k.Name))
		}
	}
}
