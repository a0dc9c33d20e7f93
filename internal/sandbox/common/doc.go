// Package common holds code that several drivers need: checks of a profile, the streams of a command, the
// sandbox's user, its volumes, and the copying of trees that code in a sandbox can have written.
package common
