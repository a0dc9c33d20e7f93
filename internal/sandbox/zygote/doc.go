// Package zygote runs interpreters that never run an agent's code, and from which sandboxes are forked. A
// zygote is started with the usual modules and then gets a program that turns copies of it into sandboxes. Each
// serves one trust domain. It is replaced by age and by the number of its children, because they share its
// memory layout and its hash seed.
package zygote
