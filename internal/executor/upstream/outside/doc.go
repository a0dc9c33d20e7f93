// Package outside starts the programs of servers that an operator has placed outside any sandbox, so that their
// descendants end with them.
package outside
