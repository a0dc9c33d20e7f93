// Package volume holds the volumes of a sandbox: it fills, scans, measures, exports and synchronises them. Code in
// the sandbox can have written every file, name and link in them, and can change them at any time.
package volume
