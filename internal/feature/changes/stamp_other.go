//go:build !linux

package changes

import (
	"io/fs"
	"os"
	"time"
)

// Only Linux has writable mounts, so nothing here is reached.

type stamp struct {
	Dev, Inode              uint64
	Size, Modified, Changed int64
	Mode                    fs.FileMode
}

func (s stamp) file() [2]uint64 { return [2]uint64{} }

func stampOf(info fs.FileInfo) stamp {
	return stamp{Size: info.Size(), Modified: info.ModTime().UnixNano(), Changed: info.ModTime().UnixNano(), Mode: info.Mode()}
}

func coarse() time.Time                           { return time.Now() }
func isWhiteout(fs.FileInfo) bool                 { return false }
func isOpaque(*os.File) bool                      { return false }
func cameFromBelow(*os.Root, string) bool         { return false }
func ownedAs(*os.Root, string, fs.FileInfo) error { return nil }
