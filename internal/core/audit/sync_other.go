//go:build !linux

package audit

import "os"

func dataSync(f *os.File) error { return f.Sync() }
