package config

import "strings"

// closest returns the name that a misspelt one most likely stands for, or "" when none is near: at most two letters changed, or a beginning
// that only one name has. Underscores do not count, so that REDISURL is near REDIS_URL.
func closest(name string, known []string) string {
	const far = 3
	bare := squeeze(name)
	best, distance := "", far
	for _, candidate := range known {
		for _, form := range []string{candidate, candidate + FileSuffix} {
			if d := editDistance(bare, squeeze(form), far); d < distance {
				best, distance = form, d
			}
		}
	}
	if best != "" {
		return best
	}
	for _, candidate := range known {
		if len(bare) > 3 && strings.HasPrefix(squeeze(candidate), bare) {
			if best != "" && best != candidate {
				return ""
			}
			best = candidate
		}
	}
	return best
}

func squeeze(name string) string {
	return strings.ReplaceAll(strings.TrimPrefix(name, Prefix), "_", "")
}

// editDistance is the number of letters to insert, delete, replace or swap with their neighbour to make b of a (optimal string alignment), or
// far when it is not smaller than that.
func editDistance(a, b string, far int) int {
	if len(a)-len(b) >= far || len(b)-len(a) >= far {
		return far
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], far)
}
