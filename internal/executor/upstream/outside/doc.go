// Package outside starts the programs of servers that an operator has placed outside any box, so that what
// they start ends with them.
package outside
