// Package mount opens the files and folders of the host that a sandbox is shown.
package mount
