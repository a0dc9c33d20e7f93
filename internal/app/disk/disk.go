// Package disk measures the parts of the state directory.
package disk

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Part is one part of the state directory, its purpose and its size.
type Part struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Files int    `json:"files"`
	What  string `json:"what"`
}

// holds describes each part of the state directory, and how to remove it.
var holds = map[string]string{
	"log": "audit log; log.keep", "packages": "packages of servers; 30 days after the last use",
	"workspaces": "files of sessions; 30 days after the last use",
	"gvisor":     "the gVisor runtime; written again when needed", "templates": "root filesystems; waldo template rm",
	"backups":  "files that import and install changed",
	"waldo.db": "approvals, sandboxes and other state", "waldo.store": "the database in PostgreSQL", "cache": "downloaded packages of sandboxes",
	"run": "the gVisor runtime; written again when needed", "approvers": "sealed keys of approvers",
	"trust.json": "the configurations that waldo trust recorded", "hosts": "files of hosts before waldo install; --undo",
	"waldo.db-wal": "part of waldo.db", "waldo.db-shm": "part of waldo.db",
	"blobs": "file contents of snapshots; waldo sandbox snapshot --rm",
	"data":  "data of servers (data: NAME); never removed by waldo", "secrets": "sealed secrets; waldo secret rm",
	"agents": "conversations of waldo agent",
	"askers": "a lock for each running waldo", "warned": "when the last warning about this machine was shown", "waldo.lock": "pinned servers without a configuration file",
	"questions.key": "the key of questions with values of tokens in waldo.db",
	"programs":      "suspended programs; waldo du --programs", "engine": "compiled interpreters; written again when needed",
	"output": "output of background commands; waldo sandbox rm",
}

// Used returns the sizes of the parts of a state directory, the largest first.
func Used(state string) (all []Part, total Part, err error) {
	entries, err := os.ReadDir(state)
	if err != nil {
		return nil, total, err
	}
	total = Part{Name: "total", What: state}
	all = []Part{}
	for _, e := range entries {
		p := Part{Name: e.Name(), What: holds[e.Name()]}
		err := filepath.WalkDir(filepath.Join(state, e.Name()), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var info fs.FileInfo
				if info, err = d.Info(); err == nil {
					p.Bytes, p.Files = p.Bytes+info.Size(), p.Files+1
				}
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return nil // deleted meanwhile, or owned by a sandbox
			}
			return err
		})
		if err != nil {
			return nil, total, err
		}
		all, total.Bytes, total.Files = append(all, p), total.Bytes+p.Bytes, total.Files+p.Files
	}
	slices.SortStableFunc(all, func(a, b Part) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all, total, nil
}
