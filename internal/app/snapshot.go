package app

import (
	"context"
	"errors"

	"waldo/internal/storage/workspace"
)

// fill gives a workspace that has nothing yet the files of the snapshot that the run starts from.
func (h *App) fill(w *workspace.Workspace, err error) (*workspace.Workspace, error) {
	if err != nil || h.Snapshot == "" {
		return w, err
	}
	for _, f := range []workspace.Folder{workspace.Files, workspace.Input, workspace.Output} {
		if has, err := w.List(f, 1); err != nil {
			return nil, errors.Join(err, w.Close())
		} else if len(has) > 0 {
			return w, nil
		}
	}
	if err := h.NamedSandboxes().Fill(context.Background(), Owner(), h.Snapshot, w,
		MostLimits.Disk); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}
