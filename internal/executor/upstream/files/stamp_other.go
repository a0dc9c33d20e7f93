//go:build !linux

package files

import "io/fs"

func stampOf(info fs.FileInfo) stamp {
	return stamp{size: info.Size(), changed: info.ModTime().UnixNano()}
}
