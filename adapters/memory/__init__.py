"""In-memory fakes of every port, with state that shows any wrong restore."""
