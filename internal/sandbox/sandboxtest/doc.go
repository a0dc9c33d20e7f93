// Package sandboxtest is the suite that every driver must pass: what a box refuses and with which
// error, the limits it is held to, the facts that are told of each end, and that nothing is left.
package sandboxtest
