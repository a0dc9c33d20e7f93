// Package zygote keeps interpreters that never run an agent's code, and from which sandboxes are forked:
// started, with their usual modules, and told how to make a sandbox of a copy of themselves. One serves one
// trust domain, and is replaced by age and by the number of its children: they all have its places in memory
// and its seed of hashes.
package zygote
