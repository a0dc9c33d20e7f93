//go:build !unix

package service

import "io/fs"

func ofRoot(fs.FileInfo) bool { return false }
