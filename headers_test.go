package heed

// ietfSeeds are values of the draft's fields, from its text and from real
// services.
var ietfSeeds = []string{
	`"burst";q=100;w=60,"daily";q=1000;w=86400`,
	`"peruser";q=100;w=60;pk=:cHsdsRa894==:`,
	`"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`,
	`"default";r=50;t=30`,
	`"default";r=999;pk=:dHJpYWwxMjEzMjM=:`,
	`"sliding";q=100;w=60;burst=1000, "fixed";q=5000;w=3600;burst=0`,
	`"100-in-15min"; r=99; t=900`,
	`"100-in-15min"; q=100; w=900; pk=:YTY2NWE0NTkyMDQy:`,
	`"api";r=499;t=293`,
	`"fixed window";"api";q=500;w=300`,
	`"global-app-quota";t=3200`,
	`"default";a=50;w=30`,
	`quota;t=1`,
	`limit=100, remaining=50, reset=30`,
	`100;w=60;burst=1000;comment="sliding window", 5000;w=3600`,
	`10, 10;w=1, 50;w=60, 1000;w=3600`,
	`100;w=21600`,
}
