// Package prestart holds what drivers need for a command that starts before its job is known.
package prestart
