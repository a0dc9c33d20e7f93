//go:build !linux

package contract

// UsualIsolation is the level that auto means for read and write, and of waldo's own capabilities. Outside Linux it is
// the only one. It runs scripts.
const UsualIsolation = "engine"
