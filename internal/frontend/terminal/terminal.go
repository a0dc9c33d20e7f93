// Package terminal is the front end of a person: colours, tables, progress, questions without echo, and a terminal for
// a command in a sandbox. All text from outside is escaped by package display.
package terminal
