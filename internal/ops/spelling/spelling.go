// Package spelling finds the word that a user probably meant. It holds no words itself.
package spelling

import "strings"

// Nearest returns the candidate that name most likely stands for, or "". A candidate matches if it
// is a prefix of name or name is a prefix of it, or if at most two edits, and at most one for every
// two letters, turn name into it.
func Nearest(name string, candidates []string) string {
	best, least := "", min(2, len(strings.TrimLeft(name, "-"))/2)+1
	for _, c := range candidates {
		d := distance(name, c)
		if strings.HasPrefix(c, name) || len(c) > 2 && strings.HasPrefix(name, c) {
			d = 0
		}
		if d < least {
			best, least = c, d
		}
	}
	return best
}

// distance returns the number of edits that turn a into b: bytes that are added, removed or
// replaced, or neighbours that are swapped.
func distance(a, b string) int {
	// cost[i][j] is the distance of the first i bytes of a and the first j of b.
	cost := make([][]int, len(a)+1)
	for i := range cost {
		cost[i] = make([]int, len(b)+1)
		for j := range cost[i] {
			switch {
			case i == 0 || j == 0:
				cost[i][j] = i + j
			case a[i-1] == b[j-1]:
				cost[i][j] = cost[i-1][j-1]
			default:
				cost[i][j] = 1 + min(cost[i-1][j], cost[i][j-1], cost[i-1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cost[i][j] = min(cost[i][j], cost[i-2][j-2]+1)
			}
		}
	}
	return cost[len(a)][len(b)]
}
