// Package procstat reads the use and the state of processes from /proc.
package procstat
