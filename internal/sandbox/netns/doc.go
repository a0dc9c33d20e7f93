// Package netns holds what connects the network namespace of a sandbox with its egress.
package netns
