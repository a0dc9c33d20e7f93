// Package real tests waldo with real agent hosts and servers: see make hosts. Its tests have the build tag hosts.
package real
