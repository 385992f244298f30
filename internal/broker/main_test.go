package broker_test

import (
	"testing"

	"flashgate/internal/devstack/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }
