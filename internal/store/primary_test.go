package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a cluster with several primaries says of itself: MariaDB and Percona with Galera, MySQL with group replication.
func TestSeveralPrimariesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		is      map[string]string
		refused bool
	}{
		"MariaDB without a cluster":                {map[string]string{"wsrep_on": "OFF"}, false},
		"MySQL without a cluster":                  {map[string]string{}, false},
		"MySQL with the plugin and no group":       {map[string]string{"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, false},
		"group replication with one primary":       {map[string]string{"group_replication_group_name": "aaaaaaaa", "group_replication_single_primary_mode": "ON"}, false},
		"group replication with several primaries": {map[string]string{"group_replication_group_name": "aaaaaaaa", "group_replication_single_primary_mode": "OFF"}, true},
		"Galera": {map[string]string{"wsrep_on": "ON"}, true},
	} {
		require.Equal(t, tt.refused, multiPrimary(tt.is), name)
	}
}
