//go:build !linux

package safefile

import "os"

// Step opens a folder by its name, and refuses a link.
func Step(here *os.Root, part string) (*os.Root, error) { return stepPortably(here, part) }

// Exact opens a folder by an absolute path without links.
func Exact(path string) (*os.Root, error) { return exactPortably(path) }
