// Package common is what more than one way of making boxes needs: what a profile must hold to,
// the streams of a command, the user that a box belongs to, its writable places, and the copying
// of trees that code in a box may have written.
package common
