-- Web analytics over one wide table of page views, `hits`.
-- Sensitive: phrase, engine, phone, topic, age, sex, income, ad_clicked.

-- name: all views
SELECT COUNT(*) FROM hits;

-- name: views that came from an engine
SELECT COUNT(*) FROM hits WHERE engine <> 0;

-- name: sum, count and mean in one line
SELECT SUM(engine), COUNT(*), AVG(width) FROM hits;

-- name: mean of an identifier
SELECT AVG(visitor) FROM hits;

-- name: visitors
SELECT COUNT(DISTINCT visitor) FROM hits;

-- name: phrases in use
SELECT COUNT(DISTINCT phrase) FROM hits;

-- name: first and last day
SELECT MIN(day), MAX(day) FROM hits;

-- name: engines by number of views
SELECT engine, COUNT(*) FROM hits WHERE engine <> 0 GROUP BY engine ORDER BY COUNT(*) DESC;

-- name: regions by visitors
SELECT region, COUNT(DISTINCT visitor) AS visitors FROM hits GROUP BY region ORDER BY visitors DESC, region LIMIT 10;

-- name: regions with engine use, width and visitors
SELECT region, SUM(engine), COUNT(*) AS views, AVG(width), COUNT(DISTINCT visitor)
FROM hits GROUP BY region ORDER BY views DESC, region LIMIT 10;

-- name: phones by visitors
SELECT phone, COUNT(DISTINCT visitor) AS visitors FROM hits WHERE phone <> '' GROUP BY phone ORDER BY visitors DESC LIMIT 10;

-- name: phones and systems by visitors
SELECT system, phone, COUNT(DISTINCT visitor) AS visitors FROM hits WHERE phone <> ''
GROUP BY system, phone ORDER BY visitors DESC, system, phone LIMIT 10;

-- name: phrases by views
SELECT phrase, COUNT(*) AS views FROM hits WHERE phrase <> '' GROUP BY phrase ORDER BY views DESC, phrase LIMIT 10;

-- name: phrases by visitors
SELECT phrase, COUNT(DISTINCT visitor) AS visitors FROM hits WHERE phrase <> '' GROUP BY phrase ORDER BY visitors DESC, phrase LIMIT 10;

-- name: engines and phrases
SELECT engine, phrase, COUNT(*) AS views FROM hits WHERE phrase <> ''
GROUP BY engine, phrase ORDER BY views DESC, engine, phrase LIMIT 10;

-- name: busiest visitors
SELECT visitor, COUNT(*) FROM hits GROUP BY visitor ORDER BY COUNT(*) DESC, visitor LIMIT 10;

-- name: visitors and phrases by views
SELECT visitor, phrase, COUNT(*) FROM hits GROUP BY visitor, phrase ORDER BY COUNT(*) DESC, visitor, phrase LIMIT 10;

-- name: some sites and phrases
SELECT site, phrase, COUNT(*) FROM hits WHERE site IN (11, 12) GROUP BY site, phrase ORDER BY site, phrase;

-- name: views by hour of the day and topic
SELECT extract(hour FROM seen_at) AS hour, topic, COUNT(*) AS views
FROM hits GROUP BY hour, topic ORDER BY hour, topic;

-- name: one visitor's views
SELECT visitor FROM hits WHERE visitor = 535;

-- name: addresses with a word in them
SELECT COUNT(*) FROM hits WHERE url LIKE '%news%';

-- name: phrases beside addresses with a word
SELECT phrase, MIN(url), COUNT(*) AS views FROM hits
WHERE url LIKE '%shop%' AND phrase <> '' GROUP BY phrase ORDER BY views DESC, phrase LIMIT 10;

-- name: titles with a word, phrases and visitors
SELECT phrase, COUNT(*) AS views, COUNT(DISTINCT visitor) AS visitors
FROM hits WHERE title LIKE '%news%' AND url NOT LIKE '%beta%' AND phrase <> ''
GROUP BY phrase ORDER BY views DESC, phrase LIMIT 10;

-- name: newest views of an address
SELECT * FROM hits WHERE url LIKE '%maps%' ORDER BY seen_at, view_id LIMIT 10;

-- name: newest phrases
SELECT phrase FROM hits WHERE phrase <> '' ORDER BY seen_at, view_id LIMIT 10;

-- name: mean length of addresses by site
SELECT site, AVG(length(url)) AS mean, COUNT(*) AS views FROM hits
WHERE url <> '' GROUP BY site HAVING COUNT(*) > 500 ORDER BY mean DESC LIMIT 25;

-- name: referring hosts
SELECT regexp_replace(referrer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS host,
       AVG(length(referrer)) AS mean, COUNT(*) AS views, MIN(referrer)
FROM hits WHERE referrer <> '' GROUP BY host HAVING COUNT(*) > 100 ORDER BY mean DESC, host LIMIT 25;

-- name: ninety sums
SELECT SUM(engine), SUM(engine + 1), SUM(engine + 2), SUM(engine + 3), SUM(engine + 4), SUM(engine + 5),
  SUM(engine + 6), SUM(engine + 7), SUM(engine + 8), SUM(engine + 9), SUM(engine + 10), SUM(engine + 11),
  SUM(engine + 12), SUM(engine + 13), SUM(engine + 14), SUM(engine + 15), SUM(engine + 16), SUM(engine + 17),
  SUM(engine + 18), SUM(engine + 19), SUM(engine + 20), SUM(engine + 21), SUM(engine + 22), SUM(engine + 23),
  SUM(engine + 24), SUM(engine + 25), SUM(engine + 26), SUM(engine + 27), SUM(engine + 28), SUM(engine + 29),
  SUM(engine + 30), SUM(engine + 31), SUM(engine + 32), SUM(engine + 33), SUM(engine + 34), SUM(engine + 35),
  SUM(engine + 36), SUM(engine + 37), SUM(engine + 38), SUM(engine + 39), SUM(engine + 40), SUM(engine + 41),
  SUM(engine + 42), SUM(engine + 43), SUM(engine + 44), SUM(engine + 45), SUM(engine + 46), SUM(engine + 47),
  SUM(engine + 48), SUM(engine + 49), SUM(engine + 50), SUM(engine + 51), SUM(engine + 52), SUM(engine + 53),
  SUM(engine + 54), SUM(engine + 55), SUM(engine + 56), SUM(engine + 57), SUM(engine + 58), SUM(engine + 59),
  SUM(engine + 60), SUM(engine + 61), SUM(engine + 62), SUM(engine + 63), SUM(engine + 64), SUM(engine + 65),
  SUM(engine + 66), SUM(engine + 67), SUM(engine + 68), SUM(engine + 69), SUM(engine + 70), SUM(engine + 71),
  SUM(engine + 72), SUM(engine + 73), SUM(engine + 74), SUM(engine + 75), SUM(engine + 76), SUM(engine + 77),
  SUM(engine + 78), SUM(engine + 79), SUM(engine + 80), SUM(engine + 81), SUM(engine + 82), SUM(engine + 83),
  SUM(engine + 84), SUM(engine + 85), SUM(engine + 86), SUM(engine + 87), SUM(engine + 88), SUM(engine + 89)
FROM hits;

-- name: engines and systems with refreshes and widths
SELECT engine, system, COUNT(*) AS views, SUM(is_refresh::INT), AVG(width) FROM hits
WHERE phrase <> '' GROUP BY engine, system ORDER BY views DESC, engine, system LIMIT 10;

-- name: profile of each site's public
SELECT site, COUNT(*) AS views, AVG(age) AS age, AVG(income) AS income, SUM(CASE WHEN sex = 'f' THEN 1 ELSE 0 END) AS women,
       COUNT(*) FILTER (WHERE ad_clicked) AS clicks, COUNT(*) FILTER (WHERE phrase <> '') AS searches,
       COUNT(*) FILTER (WHERE topic = 'health') AS health
FROM hits WHERE is_refresh = false GROUP BY site ORDER BY views DESC LIMIT 10;

-- name: addresses by views of one topic
SELECT url, COUNT(*) AS views FROM hits WHERE topic = 'health' GROUP BY url ORDER BY views DESC, url LIMIT 10;

-- name: a constant beside addresses
SELECT 1, url, COUNT(*) AS views FROM hits GROUP BY 1, url ORDER BY views DESC, url LIMIT 10;

-- name: ages around the mean
SELECT age, age - 1, age - 2, COUNT(*) AS views FROM hits WHERE age BETWEEN 30 AND 49
GROUP BY age, age - 1, age - 2 ORDER BY views DESC, age LIMIT 10;

-- name: pages of one site in July
SELECT title, COUNT(*) AS views FROM hits
WHERE site = 11 AND day >= DATE '2023-07-01' AND day <= DATE '2023-07-31' AND NOT is_refresh AND sex = 'f'
GROUP BY title ORDER BY views DESC, title LIMIT 10;

-- name: pages that were reached without a click
SELECT url FROM hits WHERE site = 12 AND NOT ad_clicked AND topic IS NOT NULL GROUP BY url ORDER BY url;

-- name: where visits come from
SELECT CASE WHEN engine = 0 AND referrer = '' THEN 'direct' WHEN engine = 0 THEN 'link' ELSE 'search' END AS source,
       url, COUNT(*) AS views
FROM hits WHERE site IN (11, 12) AND day BETWEEN DATE '2023-07-01' AND DATE '2023-07-31'
GROUP BY source, url ORDER BY views DESC, source, url LIMIT 20;

-- name: window sizes of a sex
SELECT width, height, COUNT(*) AS views FROM hits WHERE sex = 'm' AND NOT is_refresh
GROUP BY width, height ORDER BY views DESC, width, height LIMIT 10 OFFSET 5;

-- name: clicks by day
SELECT date_trunc('day', seen_at) AS date, COUNT(*) AS views FROM hits
WHERE ad_clicked AND seen_at >= TIMESTAMP '2023-07-14' AND seen_at < TIMESTAMP '2023-07-21'
GROUP BY date ORDER BY date;

-- name: first and last view with a phrase
SELECT phrase, MIN(seen_at) AS first, MAX(seen_at) AS last, COUNT(*) AS views
FROM hits GROUP BY phrase ORDER BY views DESC, phrase LIMIT 5;

-- name: slowest page of each topic
SELECT topic, MAX(load_ms) AS slowest FROM hits WHERE topic IS NOT NULL GROUP BY topic ORDER BY slowest DESC, topic;

-- name: median load time by topic
SELECT topic, MEDIAN(load_ms) AS middle FROM hits WHERE topic IN ('news', 'sport', 'games') GROUP BY topic ORDER BY topic;

-- name: sessions with a click by week
SELECT date_trunc('week', day) AS week, COUNT(DISTINCT session) AS sessions, SUM(revenue) AS revenue
FROM hits WHERE ad_clicked GROUP BY week ORDER BY week;

-- name: mean income and visitors of those who clicked, by browser
SELECT browser, AVG(income) AS income, SUM(revenue) AS revenue, COUNT(DISTINCT visitor) AS visitors
FROM hits WHERE ad_clicked GROUP BY browser ORDER BY browser;
