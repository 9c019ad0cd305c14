package heed

import (
	"slices"
	"time"
)

const day = 24 * time.Hour

// dialectTable is the dialects heed knows. Where an origin or a sign decides,
// the dialect's fields are read as it says; all other fields as the dialects
// say that anybody may speak. Of those, the first one whose pattern fits a name
// has it, so that the families without a service come last.
//
// Names of fields are in their canonical form.
var dialectTable = slices.Concat(dialectsByOrigin, dialectsByField, dialectFamilies)

// dialectsByOrigin are services told by their origin, most of which speak a family's dialect
// and refuse in a way of their own.
var dialectsByOrigin = []Dialect{
	{
		Name:    "github",
		Origins: []string{"api.github.com", "uploads.github.com", "*.ghe.com"},
		Sign:    "X-Github-Media-Type", // GitHub Enterprise is at home anywhere
		Quotas:  []QuotaFields{plain("X-Ratelimit-", 0)},
		Bucket:  "X-Ratelimit-Resource",
		Refusals: []Refusal{
			// The secondary limits: all has to stop, whatever is left.
			{Status: 403, Body: "secondary rate limit", Global: true, Wait: time.Minute},
			{Status: 429, Body: "secondary rate limit", Global: true, Wait: time.Minute},
			{Status: 403, Body: "abuse detection mechanism", Global: true, Wait: time.Minute},
			{Status: 403, Exhausted: true},
			{Status: 429, Exhausted: true},
			{Status: 403, Body: "API rate limit exceeded", Wait: time.Minute},
			{Status: 403, RetryAfter: true, Global: true},
			{Status: 429, Global: true, Wait: time.Minute},
			{Status: 200, RetryAfter: true, Global: true}, // GraphQL's secondary limit
		},
	},
	{
		Name:    "gitlab",
		Origins: []string{"gitlab.com"},
		Sign:    "Ratelimit-Observed",
		Quotas: []QuotaFields{{
			Limit: "Ratelimit-Limit", Remaining: "Ratelimit-Remaining", Used: "Ratelimit-Observed",
			Reset: "Ratelimit-Reset Ratelimit-Resettime",
		}},
		Bucket: "Ratelimit-Name",
	},
	{Name: "huggingface", Origins: []string{"huggingface.co"}, Named: true},
	{Name: "bitbucket", Origins: []string{"api.bitbucket.org", "bitbucket.org"}, Bucket: "X-Ratelimit-Resource"},
	{Name: "jira", Origins: []string{"*.atlassian.net", "api.atlassian.com"}, Quotas: []QuotaFields{plain("X-Ratelimit-", 0)}},
	{Name: "twitch", Origins: []string{"api.twitch.tv"}, Quotas: []QuotaFields{plain("Ratelimit-", 0)}},
	{Name: "digitalocean", Origins: []string{"api.digitalocean.com"}, Quotas: []QuotaFields{plain("Ratelimit-", time.Hour)}},
	{Name: "docker-hub", Origins: []string{"registry-1.docker.io", "hub.docker.com"}, Sign: "Docker-Ratelimit-Source"},
	{
		Name: "yelp", Origins: []string{"api.yelp.com"},
		Quotas: []QuotaFields{{
			Policy: "daily", Limit: "Ratelimit-Dailylimit", Remaining: "Ratelimit-Remaining", Reset: "Ratelimit-Resettime", Window: day,
		}},
	},
	{
		Name: "discord", Origins: []string{"discord.com", "discordapp.com", "*.discord.com"},
		Quotas: []QuotaFields{plain("X-Ratelimit-", 0)},
		Bucket: "X-Ratelimit-Bucket",
		Majors: []string{"channels", "guilds", "webhooks"},
		Global: []string{"X-Ratelimit-Global: true", "X-Ratelimit-Scope: global"},
	},
	{
		Name: "reddit", Origins: []string{"oauth.reddit.com", "www.reddit.com", "api.reddit.com"},
		Quotas: []QuotaFields{plain("X-Ratelimit-", 10*time.Minute)},
	},
	{
		Name: "linear", Origins: []string{"api.linear.app"},
		Quotas:   []QuotaFields{trio("X-Ratelimit-*-")},
		Refusals: []Refusal{{Status: 400, Exhausted: true, Body: "RATELIMITED"}},
	},
	{
		Name: "rapidapi", Origins: []string{"*.rapidapi.com"},
		Quotas: []QuotaFields{trio("X-Ratelimit-*-")},
	},
	{
		Name: "openai", Origins: []string{"api.openai.com", "*.openai.azure.com", "*.cognitiveservices.azure.com"},
		Sign:   "Openai-Processing-Ms",
		Quotas: []QuotaFields{suffixed("X-Ratelimit-")},
		Refusals: []Refusal{
			{Status: 429, Body: "insufficient_quota", NoRetry: true}, // money has run out, not time
			{Status: 429, Body: "billing_hard_limit_reached", NoRetry: true},
		},
	},
	{
		Name: "groq", Origins: []string{"api.groq.com"},
		Quotas: []QuotaFields{
			named("X-Ratelimit-", "requests", "", day),
			named("X-Ratelimit-", "tokens", "tokens", time.Minute),
		},
	},
	{
		Name: "mistral", Origins: []string{"api.mistral.ai"},
		Quotas: []QuotaFields{
			suffixed("X-Ratelimit-"),
			trio("Ratelimitbysize-").as("tokens", "tokens", 0),
			{
				Policy: "tokens-*", Unit: "tokens", Limit: "X-Ratelimitbysize-Limit-*", Remaining: "X-Ratelimitbysize-Remaining-*",
			},
		},
	},
	{
		Name: "cohere", Origins: []string{"api.cohere.com", "api.cohere.ai"}, Anywhere: true,
		Quotas: []QuotaFields{
			{
				Policy: "trial", Window: time.Minute, PerRoute: true,
				Limit: "X-Trial-Endpoint-Call-Limit", Remaining: "X-Trial-Endpoint-Call-Remaining",
			},
			{Policy: "monthly", Window: 30 * day, Limit: "X-Endpoint-Monthly-Call-Limit"},
		},
	},
	{
		Name: "anthropic", Origins: []string{"api.anthropic.com"}, Anywhere: true,
		Quotas: []QuotaFields{
			trio("Anthropic-Ratelimit-Requests-").as("requests", "", time.Minute),
			trio("Anthropic-Ratelimit-Tokens-").as("tokens", "tokens", time.Minute),
			trio("Anthropic-Ratelimit-Input-Tokens-").as("input-tokens", "tokens", time.Minute),
			trio("Anthropic-Ratelimit-Output-Tokens-").as("output-tokens", "tokens", time.Minute),
			trio("Anthropic-Ratelimit-*-"),
			trio("Anthropic-Priority-*-").as("priority-*", "", 0),
		},
		Refusals: []Refusal{{Status: 529}}, // overloaded
	},
	{Name: "notion", Origins: []string{"api.notion.com"}, Refusals: []Refusal{{Status: 529}}},
	{
		Name: "twitter", Origins: []string{"api.twitter.com", "api.x.com"},
		Quotas: []QuotaFields{
			perRoute(plain("X-Rate-Limit-", 0)),
			perRoute(trio("X-App-Limit-24hour-").as("app-24hour", "", day)),
			perRoute(trio("X-User-Limit-24hour-").as("user-24hour", "", day)),
		},
		Refusals: []Refusal{{Status: 420}},
	},
	{
		// A quota of 0 is how it says that too many requests are in flight.
		Name: "okta", Origins: []string{"*.okta.com", "*.oktapreview.com", "*.okta-emea.com"},
		Quotas: []QuotaFields{{
			Limit: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining", Reset: "X-Rate-Limit-Reset", ZeroUnknown: true,
		}},
	},
	{Name: "prisjakt", Origins: []string{"api.schibsted.com", "*.prisjakt.nu"}, Quotas: []QuotaFields{
		{
			Limit: "X-Rate-Limit-Limit X-Ratelimit-Limit", Remaining: "X-Rate-Limit-Remaining X-Ratelimit-Remaining",
			Reset: "X-Rate-Limit-Reset X-Ratelimit-Reset", ResetForm: TimeMilliseconds, Window: time.Hour,
		},
	}},
	{Name: "scopemaster", Origins: []string{"*.scopemaster.com"}, Refusals: []Refusal{{Status: 402, Exhausted: true}}},
	{
		Name: "stripe", Origins: []string{"api.stripe.com"}, Sign: "Stripe-Rate-Limited-Reason",
		Global:  []string{"Stripe-Rate-Limited-Reason: global-rate", "Stripe-Rate-Limited-Reason: global-concurrency"},
		NoRetry: []string{"Stripe-Should-Retry: false"},
	},
	{
		Name: "google", Origins: []string{"*.googleapis.com"},
		Refusals: []Refusal{
			{Status: 403, Body: "dailyLimitExceeded", NoRetry: true}, // until the day is over in California
			{Status: 403, Body: "quotaExceeded", NoRetry: true},
			{Status: 403, Body: "rateLimitExceeded"},
			{Status: 403, Body: "userRateLimitExceeded"},
			{Status: 429, Member: "retryDelay"}, // of google.rpc.RetryInfo
		},
	},
	{
		Name: "aws", Origins: []string{"*.amazonaws.com"},
		Refusals: []Refusal{
			{Status: 400, Body: "Throttling"}, // ThrottlingException and its relatives
			{Status: 400, Body: "ProvisionedThroughputExceeded"},
			{Status: 400, Body: "RequestLimitExceeded"},
		},
	},
	{
		Name: "airtable", Origins: []string{"api.airtable.com"},
		Refusals: []Refusal{{Status: 429, Wait: 30 * time.Second}},
	},
	{
		Name: "app-store-connect", Origins: []string{"api.appstoreconnect.apple.com"},
		Quotas: []QuotaFields{{Form: FormScopes, Limit: "X-Rate-Limit"}},
	},
	{
		Name: "datadog", Origins: []string{"*.datadoghq.com", "*.datadoghq.eu", "*.ddog-gov.com"},
		Quotas: []QuotaFields{plain("X-Ratelimit-", 0)},
		Bucket: "X-Ratelimit-Name",
	},
	{
		Name: "docusign", Origins: []string{"*.docusign.net", "*.docusign.com"},
		Quotas: []QuotaFields{
			plain("X-Ratelimit-", time.Hour),
			{Policy: "burst", Limit: "X-Burstlimit-Limit", Remaining: "X-Burstlimit-Remaining", Window: 30 * time.Second},
		},
		Refusals: []Refusal{
			{Status: 400, Body: "HOURLY_APIINVOCATION_LIMIT_EXCEEDED"},
			{Status: 400, Body: "BURST_APIINVOCATION_LIMIT_EXCEEDED"},
		},
	},
	{
		// What it says is used is what one request took.
		Name: "eve-online", Origins: []string{"esi.evetech.net"},
		Quotas: []QuotaFields{
			{Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining"},
			{Policy: "errors", Unit: "errors", Remaining: "X-Esi-Error-Limit-Remain", Reset: "X-Esi-Error-Limit-Reset"},
		},
		Bucket:   "X-Ratelimit-Group",
		Refusals: []Refusal{{Status: 420, Global: true}},
	},
	{
		Name: "toggl", Origins: []string{"api.track.toggl.com"},
		Quotas: []QuotaFields{{
			Policy: "quota", Remaining: "X-Toggl-Quota-Remaining", Reset: "X-Toggl-Quota-Resets-In", Window: time.Hour,
		}},
		Refusals: []Refusal{{Status: 402, Exhausted: true}},
	},
	{Name: "urlscan", Origins: []string{"urlscan.io"}, Quotas: []QuotaFields{plain("X-Rate-Limit-", 0)}, Bucket: "X-Rate-Limit-Action"},
	{Name: "zoom", Origins: []string{"api.zoom.us"}, Quotas: []QuotaFields{plain("X-Ratelimit-", 0)}, Bucket: "X-Ratelimit-Category"},
	{
		Name: "bigcommerce", Origins: []string{"api.bigcommerce.com"}, Anywhere: true,
		Quotas: []QuotaFields{{
			Limit: "X-Rate-Limit-Requests-Quota", Remaining: "X-Rate-Limit-Requests-Left",
			Reset: "X-Rate-Limit-Time-Reset-Ms", Interval: "X-Rate-Limit-Time-Window-Ms",
		}},
	},
	{
		Name: "xero", Origins: []string{"api.xero.com"}, Anywhere: true,
		Quotas: []QuotaFields{
			{Policy: "minute", Remaining: "X-Minlimit-Remaining", Window: time.Minute},
			{Policy: "day", Remaining: "X-Daylimit-Remaining", Window: day},
			{Policy: "app-minute", Remaining: "X-Appminlimit-Remaining", Window: time.Minute},
		},
	},
	{
		Name: "strava", Origins: []string{"www.strava.com"}, Sign: "X-Ratelimit-Usage",
		Quotas: []QuotaFields{
			{
				Form: FormPositions, Limit: "X-Ratelimit-Limit", Used: "X-Ratelimit-Usage",
				Windows: []time.Duration{15 * time.Minute, day}, Aligned: true,
			},
			{
				Policy: "read", Form: FormPositions, Limit: "X-Readratelimit-Limit", Used: "X-Readratelimit-Usage",
				Windows: []time.Duration{15 * time.Minute, day}, Aligned: true,
			},
		},
	},
	{
		Name: "spring", Sign: "X-Ratelimit-Burst-Capacity", // Spring Cloud Gateway
		Quotas: []QuotaFields{{
			Limit: "X-Ratelimit-Burst-Capacity", Remaining: "X-Ratelimit-Remaining", Rate: "X-Ratelimit-Replenish-Rate",
		}},
	},
}

// dialectsByField are told by their fields, wherever they are sent.
var dialectsByField = []Dialect{
	{
		Name: "riot", Origins: []string{"*.api.riotgames.com"}, Anywhere: true,
		Quotas: []QuotaFields{
			{Policy: "app", Form: FormWindows, Limit: "X-App-Rate-Limit", Used: "X-App-Rate-Limit-Count"},
			{Policy: "method", Form: FormWindows, Limit: "X-Method-Rate-Limit", Used: "X-Method-Rate-Limit-Count", PerRoute: true},
		},
		Global: []string{"X-Rate-Limit-Type: application"},
		Route:  []string{"X-Rate-Limit-Type: method", "X-Rate-Limit-Type: service"},
	},
	{
		Name: "shopify", Origins: []string{"*.myshopify.com"}, Anywhere: true,
		Quotas: []QuotaFields{{
			Form: FormRatio, Used: "X-Shopify-Shop-Api-Call-Limit", Window: 20 * time.Second, // whatever the plan
		}},
		Refusals: []Refusal{{Status: 430}},
	},
	{
		Name: "gorgias", Origins: []string{"*.gorgias.com"}, Anywhere: true,
		Quotas: []QuotaFields{{
			Form: FormRatio, Used: "X-Gorgias-Account-Api-Call-Limit", Window: 20 * time.Second, // as Shopify's
		}},
	},
	{
		Name: "hubspot", Origins: []string{"api.hubapi.com", "api.hubspot.com"}, Anywhere: true,
		Quotas: []QuotaFields{
			{
				Policy: "interval", Limit: "X-Hubspot-Ratelimit-Max", Remaining: "X-Hubspot-Ratelimit-Remaining",
				Interval: "X-Hubspot-Ratelimit-Interval-Milliseconds",
			},
			{Policy: "daily", Limit: "X-Hubspot-Ratelimit-Daily", Remaining: "X-Hubspot-Ratelimit-Daily-Remaining", Window: day},
			// What it still says of each second it no longer enforces.
		},
	},
	{
		Name: "imgur", Anywhere: true,
		Quotas: []QuotaFields{
			{Policy: "client", Limit: "X-Ratelimit-Clientlimit", Remaining: "X-Ratelimit-Clientremaining", Reset: "X-Ratelimit-Clientreset"},
			{Policy: "user", Limit: "X-Ratelimit-Userlimit", Remaining: "X-Ratelimit-Userremaining", Reset: "X-Ratelimit-Userreset"},
		},
	},
	{
		Name: "hapi-rate-limit", Anywhere: true, // its users' quota is written as Imgur's
		Quotas: []QuotaFields{
			{
				Policy: "path", PerRoute: true,
				Limit: "X-Ratelimit-Pathlimit", Remaining: "X-Ratelimit-Pathremaining", Reset: "X-Ratelimit-Pathreset",
			},
			{
				Policy: "user-path", PerRoute: true,
				Limit: "X-Ratelimit-Userpathlimit", Remaining: "X-Ratelimit-Userpathremaining", Reset: "X-Ratelimit-Userpathreset",
			},
		},
	},
	{
		Name: "jumpseller", Origins: []string{"api.jumpseller.com"}, Anywhere: true,
		Quotas: []QuotaFields{
			{Policy: "minute", Limit: "Jumpseller-Perminuteratelimit-Limit", Remaining: "Jumpseller-Perminuteratelimit-Remaining", Window: time.Minute},
			{Policy: "second", Limit: "Jumpseller-Persecondratelimit-Limit", Remaining: "Jumpseller-Persecondratelimit-Remaining", Window: time.Second},
		},
		Refusals: []Refusal{{Status: 403, Exhausted: true}},
	},
	{
		Name: "zendesk", Origins: []string{"*.zendesk.com"}, Anywhere: true, Named: true,
		Quotas: []QuotaFields{{Form: FormKeys, Limit: "Zendesk-Ratelimit-*"}},
	},
	{
		Name: "trello", Origins: []string{"api.trello.com", "trello.com"}, Anywhere: true,
		Quotas: []QuotaFields{
			trello("api-key", "X-Rate-Limit-Api-Key-"),
			trello("api-token", "X-Rate-Limit-Api-Token-"),
			trello("member", "X-Rate-Limit-Member-"),
		},
	},
	{
		Name: "sentry", Anywhere: true,
		Quotas: []QuotaFields{
			plain("X-Sentry-Rate-Limit-", 0),
			{
				Policy: "concurrent", Unit: UnitConcurrentRequests,
				Limit: "X-Sentry-Rate-Limit-Concurrentlimit", Remaining: "X-Sentry-Rate-Limit-Concurrentremaining",
			},
			{Form: FormCategories, Limit: "X-Sentry-Rate-Limits"},
		},
	},
	{
		Name: "contentful", Anywhere: true,
		Quotas: []QuotaFields{
			{
				Policy: "second", Limit: "X-Contentful-Ratelimit-Second-Limit", Remaining: "X-Contentful-Ratelimit-Second-Remaining",
				RetryAfter: "X-Contentful-Ratelimit-Reset", Window: time.Second,
			},
			{Policy: "hour", Limit: "X-Contentful-Ratelimit-Hour-Limit", Remaining: "X-Contentful-Ratelimit-Hour-Remaining", Window: time.Hour},
		},
	},
	{
		Name: "salesforce", Origins: []string{"*.salesforce.com"}, Anywhere: true,
		Quotas:   []QuotaFields{{Policy: "api-usage", Form: FormRatio, Used: "Sforce-Limit-Info", Window: day}},
		Refusals: []Refusal{{Status: 403, Exhausted: true, Body: "REQUEST_LIMIT_EXCEEDED"}},
	},
	{
		Name: "meta", Origins: []string{"graph.facebook.com", "graph.instagram.com"}, Anywhere: true,
		Quotas: []QuotaFields{
			{Policy: "app", Form: FormPercent, Used: "X-App-Usage"},
			{Policy: "page", Form: FormPercent, Used: "X-Page-Usage"},
			{Policy: "business", Form: FormPercent, Used: "X-Business-Use-Case-Usage"},
			{Policy: "ad-account", Form: FormPercent, Used: "X-Ad-Account-Usage"},
		},
		Refusals: []Refusal{
			{Status: 400, Body: "request limit reached"}, // codes 4, 17 and 32
			{Status: 400, Body: "exceeded the rate limit"},
			{Status: 400, Body: "too many calls"},
			{Status: 403, Body: "request limit reached"},
			{Status: 403, Body: "exceeded the rate limit"},
			{Status: 403, Body: "too many calls"},
		},
	},
	{
		Name: "binance", Origins: []string{"*.binance.com", "*.binance.us", "*.binance.vision"}, Anywhere: true,
		Quotas: []QuotaFields{
			{Policy: "weight-*", Unit: "weight", Used: "X-Mbx-Used-Weight-*"},
			{Policy: "ip-weight-*", Unit: "weight", Used: "X-Sapi-Used-Ip-Weight-*"},
			{Policy: "uid-weight-*", Unit: "weight", Used: "X-Sapi-Used-Uid-Weight-*"},
			{Policy: "orders-*", Unit: "orders", Used: "X-Mbx-Order-Count-*"},
		},
		Refusals: []Refusal{{Status: 418, Global: true}}, // a ban, for as long as Retry-After says
	},
	{
		Name: "bybit", Origins: []string{"api.bybit.com", "api-testnet.bybit.com"}, Anywhere: true,
		Quotas: []QuotaFields{{
			Limit: "X-Bapi-Limit", Remaining: "X-Bapi-Limit-Status", Reset: "X-Bapi-Limit-Reset-Timestamp", ResetIfExceeded: true,
			Window: time.Second, PerRoute: true,
		}},
		Refusals: []Refusal{{Status: 403, Body: "access too frequent", Global: true}},
	},
	{
		Name: "kucoin", Anywhere: true,
		Quotas: []QuotaFields{{
			Limit: "Gw-Ratelimit-Limit", Remaining: "Gw-Ratelimit-Remaining", Reset: "Gw-Ratelimit-Reset", ResetForm: TimeMilliseconds,
		}},
	},
	{
		Name: "lark", Origins: []string{"open.feishu.cn", "open.larksuite.com"}, Anywhere: true,
		Quotas:   []QuotaFields{perRoute(trio("X-Ogw-Ratelimit-"))},
		Refusals: []Refusal{{Status: 400, Body: "99991400"}},
	},
	{Name: "ebay", Anywhere: true, Quotas: []QuotaFields{plain("X-Ebay-C-Ratelimit-", 0)}},
	{
		Name: "etsy", Anywhere: true,
		Quotas: []QuotaFields{
			{Policy: "second", Limit: "X-Limit-Per-Second", Remaining: "X-Remaining-This-Second", Window: time.Second},
			{Policy: "day", Limit: "X-Limit-Per-Day", Remaining: "X-Remaining-Today", Window: day},
		},
	},
	{Name: "amazon-sp-api", Anywhere: true, Quotas: []QuotaFields{{Rate: "X-Amzn-Ratelimit-Limit", PerRoute: true}}},
	{
		Name: "azure", Anywhere: true, Named: true, // Azure Resource Manager
		Quotas: []QuotaFields{
			{Form: FormNamed, Remaining: "X-Ms-Ratelimit-Remaining-Resource"},
			{Remaining: "X-Ms-Ratelimit-Remaining-*"},
		},
	},
	{
		Name: "oracle", Anywhere: true, // Oracle Access Governance
		Quotas: []QuotaFields{{
			Limit: "Requestlimit-*-Limit", Remaining: "Requestlimit-*-Remaining",
			RetryAfter: "Requestlimit-*-Retryafter", RetryAfterForm: TimeMilliseconds,
		}},
	},
	{Name: "twilio", Anywhere: true, Quotas: []QuotaFields{{Policy: "concurrent", Unit: UnitConcurrentRequests, Used: "Twilio-Concurrent-Requests"}}},
	{
		Name: "aircall", Anywhere: true,
		Quotas: []QuotaFields{trio("X-Aircallapi-").as("", "", time.Minute)},
	},
	{
		Name: "elevenlabs", Anywhere: true,
		Quotas: []QuotaFields{{
			Policy: "concurrent", Unit: UnitConcurrentRequests, Limit: "Maximum-Concurrent-Requests", Used: "Current-Concurrent-Requests",
		}},
	},
	{
		Name: "genesys", Anywhere: true,
		Quotas: []QuotaFields{{Limit: "Inin-Ratelimit-Allowed", Used: "Inin-Ratelimit-Count", Reset: "Inin-Ratelimit-Reset"}},
	},
	{
		Name: "discogs", Anywhere: true,
		Quotas: []QuotaFields{{
			Limit: "X-Discogs-Ratelimit", Remaining: "X-Discogs-Ratelimit-Remaining", Used: "X-Discogs-Ratelimit-Used", Window: time.Minute,
		}},
	},
	{
		Name: "gate", Anywhere: true, // Gate.io, whose windows differ from route to route
		Quotas: []QuotaFields{{
			Limit: "X-Gate-Ratelimit-Limit", Remaining: "X-Gate-Ratelimit-Requests-Remain", Reset: "X-Gate-Ratelimit-Reset-Timestamp",
			ResetIfExceeded: true, PerRoute: true,
		}},
	},
	{
		Name: "apollo", Anywhere: true, // and Lusha
		Quotas: []QuotaFields{
			{Policy: "minute", Limit: "X-Rate-Limit-Minute", Used: "X-Minute-Usage", Window: time.Minute},
			{Policy: "hour", Limit: "X-Rate-Limit-Hourly", Used: "X-Hourly-Usage", Window: time.Hour},
			{Policy: "day", Limit: "X-Rate-Limit-24-Hour X-Rate-Limit-Daily", Used: "X-24-Hour-Usage X-Daily-Usage", Window: day},
		},
	},
	{
		Name: "gravitee", Anywhere: true,
		Quotas: []QuotaFields{trio("X-Quota-").as("quota", "", 0)},
	},
	{
		Name: "apisix-ai", Anywhere: true,
		Quotas: []QuotaFields{{
			Unit: "tokens", Limit: "X-Ai-Ratelimit-Limit-*", Remaining: "X-Ai-Ratelimit-Remaining-*", Reset: "X-Ai-Ratelimit-Reset-*",
		}},
	},
	StackExchange,
	ShopifyGraphQL,
}

// dialectFamilies are spoken by many.
var dialectFamilies = []Dialect{
	{
		Name: "x-ratelimit",
		Quotas: []QuotaFields{
			plain("X-Ratelimit-", 0),
			{
				Limit:      "X-Ratelimit-Limit-* X-Ratelimit-*-Limit",
				Remaining:  "X-Ratelimit-Remaining-* X-Ratelimit-*-Remaining",
				Used:       "X-Ratelimit-Used-* X-Ratelimit-*-Used",
				Reset:      "X-Ratelimit-Reset-* X-Ratelimit-*-Reset",
				RetryAfter: "Retry-After-*",
			},
			trio("X-Tokenlimit-").as("tokens", "tokens", 0),
			{RetryAfter: "X-Retry-After"},
		},
		Bucket: "X-Ratelimit-Resource X-Ratelimit-Bucket X-Ratelimit-Group",
		Global: []string{"X-Ratelimit-Global: true", "X-Ratelimit-Scope: global"},
	},
	{
		Name: "x-rate-limit",
		Quotas: []QuotaFields{
			alsoBare(plain("X-Rate-Limit-", 0)),
			{
				Limit:     "X-Rate-Limit-Limit-* X-Rate-Limit-*-Limit",
				Remaining: "X-Rate-Limit-Remaining-* X-Rate-Limit-*-Remaining",
				Used:      "X-Rate-Limit-Used-* X-Rate-Limit-*-Used",
				Reset:     "X-Rate-Limit-Reset-* X-Rate-Limit-*-Reset",
			},
			{
				Policy: "concurrency", Unit: UnitConcurrentRequests,
				Limit:     "X-Concurrency-Limit X-Concurrency-Limit-Limit Concurrency-Limit-Limit",
				Remaining: "X-Concurrency-Limit-Remaining Concurrency-Limit-Remaining",
			},
		},
		Bucket: "X-Rate-Limit-Group",
	},
	{
		// The names of the early IETF drafts, with what those do not have.
		Name: "ratelimit",
		Quotas: []QuotaFields{
			{
				Limit: "Ratelimit-Limit", Remaining: "Ratelimit-Remaining",
				Reset: "Ratelimit-Reset Ratelimit-Resettime Ratelimit-Reset-At", ResetAfter: "Ratelimit-Reset-After Ratelimit-Reset-In",
				RetryAfter: "Ratelimit-Retry-After Ratelimit-Retryafter",
			},
			{
				Limit:     "Ratelimit-Limit-* Ratelimit-*-Limit",
				Remaining: "Ratelimit-Remaining-* Ratelimit-*-Remaining",
				Reset:     "Ratelimit-Reset-* Ratelimit-*-Reset",
			},
		},
		Bucket: "Ratelimit-Name",
	},
	{Name: "rate-limit", Quotas: []QuotaFields{alsoBare(plain("Rate-Limit-", 0))}},
	{
		// Names that begin with somebody's own, who is not in this table.
		Name: "vendor",
		Quotas: []QuotaFields{{
			Limit:     "*-Ratelimit-Limit *-Rate-Limit-Limit",
			Remaining: "*-Ratelimit-Remaining *-Rate-Limit-Remaining",
			Used:      "*-Ratelimit-Used *-Rate-Limit-Used",
			Reset:     "*-Ratelimit-Reset *-Rate-Limit-Reset *-Ratelimit-Resetat",
		}},
	},
}
